"""Numbers about attention: records and worked arithmetic. Nothing here draws."""

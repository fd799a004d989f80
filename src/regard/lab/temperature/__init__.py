"""What temperatures are used for, tried on small trained models."""

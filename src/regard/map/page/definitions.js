// What the numbers mean, in a sentence each; shown where the number is.

export const DEFINITIONS = {
  weight: "The weight that the query gives to the key; the weights of a query sum to 1.",
  uniform: "The weight times the number of keys that the query sees: 1× is what every key would get if all got the same.",
  difference: "The weight in A less the weight in B; where one of them hides the key, its weight counts as 0.",
  variation: "½ Σ |A − B| over the keys of the query: the share of its weight that the two heads give to different keys.",
  "receives less": "The sum of the weights that all queries give to this key in A, less that in B.",
  squares: "A saved view of a long matrix holds squares of weights and no single ones.",
  rank: "1 is the largest weight of the query.",
  sees: "Keys that the mask lets this query see.",
  "seen by": "Queries that the mask lets see this key.",
  receives: "The sum of the weights that all queries give to this key; 1 is the average if there are as many queries as keys.",
  entropy: "−Σ w·ln w over the keys of a query, in nats: 0 if it reads one key, ln n if it reads n keys evenly.",
  relative: "Entropy as a share of the largest possible, ln of the number of visible keys: 0 is one key, 1 is uniform.",
  distance: "Mean distance |query − key| in tokens, weighted by the weights.",
  previous: "Mean weight of the key just before the query.",
  first: "Mean weight of the first key of the text.",
  diagonal: "Mean weight of the query's own position.",
  duplicate: "Mean weight on earlier copies of the query's token.",
  induction: "Mean weight on the tokens after earlier copies of the query's token.",
  punctuation: "Mean weight on punctuation marks.",
};

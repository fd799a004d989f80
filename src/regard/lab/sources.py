"""The four documents this project grew from, as reports cite them; docs/seeds.md goes through their claims."""

SCORE_FUNCTIONS = "seed: score functions"
CONCEPTS = "seed: important concepts"
MINI_COURSE = "seed: mini-course"
RESULTS = "seed: experiment results"

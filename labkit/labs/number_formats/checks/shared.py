"""What several checks of lab 02 need: the wrong rule that explains an answer's numbers."""


def one_idea(got, truth, rules, *, places) -> str | None:
    """The one rule that gives every wrong value at these places, and is wrong mostly there."""
    wrong = {place for place in places if got[place] != truth[place]}
    fitting = []
    for idea, values in rules.items():
        differs = {place for place in places if values[place] != truth[place]}
        explains = all(got[place] == values[place] for place in wrong)
        if explains and 2 * len(differs & wrong) >= len(differs) > 0:
            fitting.append(idea)
    return fitting[0] if len(fitting) == 1 else None

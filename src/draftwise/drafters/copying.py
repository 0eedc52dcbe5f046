"""How far a copy can be trusted before it is checked: what lookup and suffix give as confidence."""


def chance(agreeing: int, places: int, matched: int, copied: int) -> float:
    """The chance that a copied token is right.

    agreeing, places: how many of the places copied from go on with it. matched: tokens before them that
    the text shares. copied: tokens of the copy before this one.

    A frequency, as if 2 / (matched + 2 copied) of a place more said otherwise. Texts that a model of
    135M wrote to eight prompts of other kinds: tokens copied from a single place were right in

        copied     0      1      2      3
        matched 1  37 %   63 %   73 %   83 %   by this formula 33, 60, 71, 78
        matched 2  47 %   70 %   80 %   79 %                   50, 67, 75, 80
        matched 3  62 %   72 %   75 %   86 %                   60, 71, 78, 82
    """
    return agreeing / (places + 2 / (matched + 2 * copied))

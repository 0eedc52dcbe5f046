"""What two sequences have in common, on which the one cache rule rests."""


def common_prefix(one: list[int], other: list[int]) -> int:
    """Length of the longest common prefix, by bisection: slices compare at the speed of C."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low

"""`python -m draftwise`."""

from draftwise.cli.main import main

if __name__ == "__main__":
    main()

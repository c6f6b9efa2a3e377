"""`python -m slipstream` is `slipstream`."""

from slipstream.cli import main

if __name__ == "__main__":
    main()

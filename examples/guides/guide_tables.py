"""What imports.py imports."""


def make():
    return {n: str(n * n) for n in range(900_000)}


SQUARES = make()

"""Check the floors of csrc/ and draw the pictures of the documents.

graph.py            draw docs/pictures/*.svg: the floors, and one for each *.txt there
graph.py --check    fail where an include or a call does not lead down, where modules include or
                    call each other in a circle, and where a picture is not what would be drawn
graph.py --text     print the floors as text, in the form that picture.py draws
"""

import sys
from collections.abc import Mapping

import floors
import picture

PICTURES = floors.ROOT / "docs/pictures"


def text_of_floors(every: Mapping[str, floors.Floor]) -> str:
    """The floors as boxes, with an arrow for what each uses and does not see without it."""
    lines = ["title: Each floor sees what its arrows lead to, and what lies below that"]
    lines += [f"node {name}" for name in every]
    parts = [name for name in every if "/" in name]
    if parts:
        lines.append(" ".join(["group", *parts]))
    for name, floor in every.items():
        lines += [
            f"{name} -> {used}"
            for used in floor.uses
            if not any(used in floors.seen(every, other) for other in floor.uses)
        ]
    return "\n".join(lines) + "\n"


def pictures(every: Mapping[str, floors.Floor]) -> dict[str, str]:
    """What each file in docs/pictures shall be, by its name."""
    drawn = {"floors.svg": picture.draw(text_of_floors(every))}
    for path in sorted(PICTURES.glob("*.txt")):
        drawn[f"{path.stem}.svg"] = picture.draw(path.read_text())
    return drawn


def main(arguments: list[str]) -> None:
    every = floors.read_floors()
    match arguments:
        case []:
            PICTURES.mkdir(exist_ok=True)
            for name, svg in pictures(every).items():
                (PICTURES / name).write_text(svg)
        case ["--text"]:
            print(text_of_floors(every), end="")
        case ["--check"]:
            found = floors.complaints(floors.Sources())
            if not found:
                found = [
                    f"docs/pictures/{name} is not what tools/graph.py draws: run it"
                    for name, svg in pictures(every).items()
                    if not (PICTURES / name).exists() or (PICTURES / name).read_text() != svg
                ]
            if found:
                sys.exit("\n".join(found))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

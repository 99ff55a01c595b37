"""Draw a picture of boxes and arrows as SVG from text: the same text gives the same bytes.

A line of the text is one of

    title: WORDS
    node NAME | HEADING | LINE | LINE...
    group NAME NAME...          these nodes have another colour
    rows: NAME NAME / NAME ...  the rows from the top; without it arrows lead down, one row at least
    NAME -> NAME | LABEL

A line that begins with # is a comment. Arrows across rows are led between the boxes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

FONT = 13
CHARACTER = 6.9
BOLD = 7.9
LINE = 17
GAP_X = 22
GAP_Y = 46
MARGIN = 16
COLOURS = ("#eef3fb", "#fdf3e1", "#eaf6ea", "#f6eaf4")


@dataclass
class Node:
    """A box, or with no lines the place where a long arrow crosses a row."""

    name: str
    lines: list[str]
    colour: int = 0
    gap: float = GAP_X  # to the next one in its row
    x: float = 0
    y: float = 0

    @property
    def width(self) -> float:
        if not self.lines:
            return 6
        widths = [BOLD * len(self.lines[0]), *(CHARACTER * len(line) for line in self.lines[1:])]
        return max(widths) + 20

    @property
    def height(self) -> float:
        return LINE * len(self.lines) + 12 if self.lines else 0


@dataclass
class Picture:
    """Nodes in rows, and arrows between them."""

    title: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    arrows: list[tuple[str, str, str]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def parse(text: str) -> Picture:
    """Read the text of a picture.

    Raises ValueError with the line that cannot be understood.
    """
    picture = Picture()
    groups = 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if line.startswith("title:"):
            picture.title = line.removeprefix("title:").strip()
        elif line.startswith("rows:"):
            picture.rows = [row.split() for row in line.removeprefix("rows:").split("/")]
        elif words[0] == "node":
            name, *lines = (part.strip() for part in line.removeprefix("node").split("|"))
            picture.nodes[name] = Node(name, lines or [name])
        elif words[0] == "group":
            groups += 1
            for name in words[1:]:
                picture.nodes[name].colour = groups
        elif "->" in words:
            ends, _, label = line.partition("|")
            start, end = (part.strip() for part in ends.split("->"))
            picture.arrows.append((start, end, label.strip()))
        else:
            raise ValueError(f"line {number} of a picture: {line}")
    for start, end, _ in picture.arrows:
        for name in (start, end):
            if name not in picture.nodes:
                raise ValueError(f"an arrow of a picture names {name}, which is no node")
    return picture


def rank(picture: Picture) -> None:
    """Put each node one row above the highest that it leads to."""
    below: dict[str, set[str]] = {name: set() for name in picture.nodes}
    for start, end, _ in picture.arrows:
        below[start].add(end)
    depth: dict[str, int] = {}

    def measure(name: str) -> int:
        if name not in depth:
            depth[name] = max((measure(other) + 1 for other in below[name]), default=0)
        return depth[name]

    count = max(map(measure, picture.nodes), default=-1) + 1
    picture.rows = [
        [name for name in picture.nodes if depth[name] == row] for row in reversed(range(count))
    ]


def draw(text: str) -> str:
    """The picture as SVG."""
    picture = parse(text)
    if not picture.rows:
        rank(picture)
    chains = lead_between_boxes(picture)
    order(picture, chains)
    place(picture, chains)
    return render(picture, chains)


def lead_between_boxes(picture: Picture) -> list[tuple[list[str], str]]:
    """Give each arrow the nodes it goes through, with one more in each row it crosses."""
    row_of = {name: row for row, names in enumerate(picture.rows) for name in names}
    chains = []
    for number, (start, end, label) in enumerate(picture.arrows):
        step = 1 if row_of[end] > row_of[start] else -1
        chain = [start]
        for row in range(row_of[start] + step, row_of[end], step):
            name = f"{number} in {row}"
            picture.nodes[name] = Node(name, [])
            picture.rows[row].append(name)
            chain.append(name)
        chains.append(([*chain, end], label))
    return chains


def order(picture: Picture, chains: Iterable[tuple[list[str], str]]) -> None:
    """Order each row by where the neighbours of its nodes are, so that few arrows cross."""
    if all(not name[0].isdigit() for row in picture.rows for name in row):
        return  # nothing to lead between boxes: as written
    beside: dict[str, list[str]] = {name: [] for name in picture.nodes}
    for chain, _ in chains:
        for one, two in pairwise(chain):
            beside[one].append(two)
            beside[two].append(one)
    best = [list(row) for row in picture.rows]
    least = crossings(picture.rows, beside)
    for turn in range(24):
        indices = range(1, len(picture.rows))
        for row in indices if turn % 2 == 0 else reversed(range(len(picture.rows) - 1)):
            other = picture.rows[row - 1 if turn % 2 == 0 else row + 1]
            at = {name: index / max(len(other) - 1, 1) for index, name in enumerate(other)}
            own = {
                name: index / max(len(picture.rows[row]) - 1, 1)
                for index, name in enumerate(picture.rows[row])
            }

            def middle(name: str, at: dict[str, float] = at, own: dict[str, float] = own) -> float:
                places = [at[neighbour] for neighbour in beside[name] if neighbour in at]
                return sum(places) / len(places) if places else own[name]

            picture.rows[row].sort(key=middle)
        count = crossings(picture.rows, beside)
        if count < least:
            least = count
            best = [list(row) for row in picture.rows]
    picture.rows = best


def crossings(rows: list[list[str]], beside: dict[str, list[str]]) -> int:
    count = 0
    for upper, lower in pairwise(rows):
        at = {name: index for index, name in enumerate(lower)}
        ends = [
            (index, at[other])
            for index, name in enumerate(upper)
            for other in beside[name]
            if other in at
        ]
        count += sum(
            (one[0] - two[0]) * (one[1] - two[1]) < 0
            for number, one in enumerate(ends)
            for two in ends[:number]
        )
    return count


def place(picture: Picture, chains: Iterable[tuple[list[str], str]]) -> None:
    """Give each node its centre: rows below one another, nodes near their neighbours."""
    beside: dict[str, list[str]] = {name: [] for name in picture.nodes}
    for chain, _ in chains:
        for one, two in pairwise(chain):
            beside[one].append(two)
            beside[two].append(one)
    for one, two, label in picture.arrows:
        if any(one in row and two in row for row in picture.rows) and label:
            row = next(row for row in picture.rows if one in row)
            first = min(one, two, key=row.index)
            picture.nodes[first].gap = CHARACTER * len(label) + 16
    y = MARGIN + (LINE + 10 if picture.title else 0.0)
    for row in picture.rows:
        height = max((picture.nodes[name].height for name in row), default=0)
        x = 0.0
        for name in row:
            node = picture.nodes[name]
            node.x, node.y = x + node.width / 2, y + height / 2
            x += node.width + node.gap
        for name in row:
            picture.nodes[name].x -= x / 2
        y += height + GAP_Y
    for _ in range(300):
        for row in picture.rows:
            pull(picture, row, beside)
    left = min(node.x - node.width / 2 for node in picture.nodes.values())
    for node in picture.nodes.values():
        node.x += MARGIN - left


def pull(picture: Picture, row: list[str], beside: dict[str, list[str]]) -> None:
    """Move the nodes of a row towards their neighbours, as far as those beside them let them."""
    nodes = [picture.nodes[name] for name in row]
    wanted = []
    for node in nodes:
        places = [picture.nodes[name].x for name in beside[node.name]]
        wanted.append(sum(places) / len(places) if places else node.x)
    # From the left no node may come nearer than its width to the one before, nor from the right;
    # halfway between both is right for all.
    from_left: list[float] = []
    for index, node in enumerate(nodes):
        at = wanted[index]
        if index:
            before = nodes[index - 1]
            at = max(at, from_left[-1] + (before.width + node.width) / 2 + before.gap)
        from_left.append(at)
    from_right: list[float] = []
    for index in reversed(range(len(nodes))):
        at = wanted[index]
        if from_right:
            after = nodes[index + 1]
            at = min(at, from_right[-1] - (after.width + nodes[index].width) / 2 - nodes[index].gap)
        from_right.append(at)
    from_right.reverse()
    for node, one, two in zip(nodes, from_left, from_right, strict=True):
        node.x = (one + two) / 2


def render(picture: Picture, chains: Iterable[tuple[list[str], str]]) -> str:
    boxes = [node for node in picture.nodes.values() if node.lines]
    width = max(node.x + node.width / 2 for node in picture.nodes.values()) + MARGIN
    width = max(width, BOLD * len(picture.title) + 2 * MARGIN)
    height = max(node.y + node.height / 2 for node in boxes) + MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="{FONT}">',
        f"<title>{escape(picture.title)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#666"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="6" fill="#fff"/>',
    ]
    if picture.title:
        out.append(
            f'<text x="{MARGIN}" y="{MARGIN + FONT}" font-weight="bold">'
            f"{escape(picture.title)}</text>"
        )
    labels = []
    for chain, label in chains:
        points = route([picture.nodes[name] for name in chain])
        out.append(f'<path d="{curve(points)}" fill="none" stroke="#666" marker-end="url(#head)"/>')
        if label:
            middle = len(points) // 2
            x = (points[middle - 1][0] + points[middle][0]) / 2
            y = (points[middle - 1][1] + points[middle][1]) / 2
            labels.append(
                f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" font-size="11"'
                f' fill="#333" stroke="#fff" stroke-width="4" paint-order="stroke">'
                f"{escape(label)}</text>"
            )
    for node in boxes:
        left, top = node.x - node.width / 2, node.y - node.height / 2
        out.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{node.width:.1f}"'
            f' height="{node.height:.1f}" rx="4" fill="{COLOURS[node.colour % len(COLOURS)]}"'
            ' stroke="#557"/>'
        )
        for index, line in enumerate(node.lines):
            weight = ' font-weight="bold"' if index == 0 else ' fill="#333"'
            baseline = top + 6 + LINE * index + FONT
            out.append(
                f'<text x="{node.x:.1f}" y="{baseline:.1f}" text-anchor="middle"{weight}>'
                f"{escape(line)}</text>"
            )
    return "\n".join([*out, *labels, "</svg>"]) + "\n"


def route(nodes: list[Node]) -> list[tuple[float, float]]:
    """The points of an arrow: from the edge of a box to the edge of another."""
    first, last = nodes[0], nodes[-1]
    if first.y == last.y:
        side = 1 if last.x > first.x else -1
        return [
            (first.x + side * first.width / 2, first.y),
            (last.x - side * last.width / 2, last.y),
        ]
    down = 1 if last.y > first.y else -1
    # An arrow leaves and arrives where its next point is, within the box.
    second, previous = nodes[1], nodes[-2]
    start = (within(first, second.x), first.y + down * first.height / 2)
    end = (within(last, previous.x), last.y - down * last.height / 2)
    return [start, *((node.x, node.y) for node in nodes[1:-1]), end]


def within(node: Node, x: float) -> float:
    half = max(node.width / 2 - 10, 0) * 0.7
    return min(max(x, node.x - half), node.x + half)


def curve(points: list[tuple[float, float]]) -> str:
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        path += f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return path

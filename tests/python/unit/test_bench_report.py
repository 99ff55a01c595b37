"""Reports of benchmarks: figures, tables, pictures and pages that can be read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyqstore.bench import drawing, floor, machine
from pyqstore.bench.plots import Plot, label, shown_number
from pyqstore.bench.report import Report, cells, read
from pyqstore.bench.runs import Case, Result, Sample, Spread

PNG = b"\x89PNG\r\n\x1a\n"


def never(_directory: Path) -> Sample:
    raise AssertionError("not to be run")


@pytest.fixture
def report() -> Report:
    found = []
    for rows in (1, 10, 100):
        samples = [
            Sample(
                1 / rows / factor, 100, 10_000, [50.0 / factor], curves={"rate": [(0, 1), (1, 2)]}
            )
            for factor in (1.0, 1.5)
        ]
        found.append(
            Result(
                Case("<ours>", never, {"rows": rows, "kind": "a"}, "disk", "sweep"),
                samples,
                Spread(0.5, 0.04, 0.75),
                "bytes_per_s",
            )
        )
    disk = Case("disk", never, group="sweep")
    found.append(Result(disk, [Sample(0.01, bytes=10_000, latencies_us=[20.0])] * 2))
    plots = [
        Plot("rates", "rows", "messages_per_s", log_x=True, log_y=True),
        Plot("latencies", "rows", "p50_us", "kind", lines={"aim": 30.0}),
        Plot("ratios", "rows", "ratio_to_floor", even=True),
        Plot("bars", "case", "messages_per_s"),
        Plot("curves", "", "rate"),
    ]
    facts = {"processor": "one & only", "file system": "ext4"}
    return Report("work", "A title", facts, "today", {"rounds": 2}, found, plots, ["Note <b>."])


def test_json_has_a_line_for_each_result_and_no_single_round(
    report: Report, tmp_path: Path
) -> None:
    report.json(tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text()
    told: dict[str, Any] = json.loads(text)
    assert (told["format"], told["work"], told["machine"]) == (3, "work", dict(report.machine))
    assert told["notes"] == ["Note <b>."]
    assert [json.loads(line.rstrip(",")) for line in text.splitlines() if '"case"' in line] == (
        told["results"]
    )
    assert told["results"][0] == {
        "group": "sweep",
        "case": "<ours>",
        "parameters": {"rows": 1, "kind": "a"},
        "floor": "disk",
        "ratio_of": "bytes_per_s",
        "messages": 100,
        "bytes": 10_000,
        "metrics": {
            "seconds": [0.833333, 0.666667, 1],
            "messages_per_s": [125, 100, 150],
            "bytes_per_s": [12_500, 10_000, 15_000],
            "p50_us": [41.6667, 33.3333, 50],
            "p99_us": [41.6667, 33.3333, 50],
            "ratio_to_floor": [0.5, 0.04, 0.75],
        },
        "curves": {"rate": [[0, 1], [1, 2]]},
    }
    assert "ratio_to_floor" not in told["results"][3]["metrics"]


def test_what_was_written_is_shown_and_drawn_again(report: Report, tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    report.json(written)
    again = read(written, "work", report.plots)
    assert again.json_text() == report.json_text()
    assert [cells(each) for each in again.groups().values()] == [
        cells(each) for each in report.groups().values()
    ]
    for one in (report, again):
        one.png(tmp_path / f"{one is again}.png")
    assert (tmp_path / "True.png").read_bytes() == (tmp_path / "False.png").read_bytes()
    for workload, said in (("other", "format 3, work, not 3, other"), ("work", "format 2, work")):
        if workload == "work":
            written.write_text(written.read_text().replace('"format": 3', '"format": 2'))
        with pytest.raises(ValueError, match=said):
            read(written, workload, report.plots)


def test_a_plot_of_what_was_not_measured_is_not_drawn(report: Report, tmp_path: Path) -> None:
    report.plots = [*report.plots, Plot("none", "rows", "none_per_s")]
    assert drawing.drawn(report) == report.plots[:-1]
    report.html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count("<svg") == len(report.plots) - 1


def test_table_has_ratios_and_what_they_are_of(report: Report) -> None:
    headings, rows = cells(report.results)
    first = dict(zip(headings, rows[0], strict=True))
    assert first["case"] == "<ours>"
    assert first["messages/s"] == "125"
    assert first["ratio to floor"] == "0.50"
    assert first["least to most"] == "0.04 to 0.75"
    assert first["floor"] == "disk, bytes/s"
    assert dict(zip(headings, rows[3], strict=True))["ratio to floor"] == ""
    assert [table.row_count for table in report.tables()] == [4]


def test_png_is_one(report: Report, tmp_path: Path) -> None:
    report.png(tmp_path / "report.png")
    contents = (tmp_path / "report.png").read_bytes()
    assert contents.startswith(PNG)
    assert contents.endswith(b"IEND\xaeB\x60\x82")


def test_html_stands_alone(report: Report, tmp_path: Path) -> None:
    report.html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == len(report.plots)
    for loaded in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)|url\(([^)]*)\)""", text):
        assert "".join(loaded).startswith("#")
    assert not re.search(r"<(script|link|img|iframe)\b|@import", text)
    assert "&lt;ours&gt;" in text
    assert "Note &lt;b&gt;." in text
    assert "one &amp; only" in text
    assert "0.04 to 0.75" in text


def test_html_has_its_words_as_text_and_is_light(report: Report, tmp_path: Path) -> None:
    report.html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    for plot in report.plots:
        assert f">{plot.title}</text>" in text
    assert len(text) < 15_000 * len(report.plots)
    pictures = re.findall(r"<svg.*?</svg>", text)
    names = [set(re.findall(r' id="([^"]*)"', picture)) for picture in pictures]
    for picture, defined in zip(pictures, names, strict=True):
        assert set(re.findall(r'(?:url\(|href=")#([^)"]*)', picture)) == defined
    assert sum(map(len, names)) == len(set().union(*names))  # of one page, so no two the same


def test_a_lighter_picture_is_the_same() -> None:
    heavy = """<svg id="figure_1">
 <defs> <path id="m1" d="M 0 0 \nL 0 3.5 \n" style="fill: #f00; opacity: 0.7"/> </defs>
 <g id="text_1"> <text x="1.23987" transform="rotate(-0 1.2 3)">0.12345: a  b</text> </g>
 <g> <use xlink:href="#m1" x="10.0071" style="fill: #f00; opacity: 0.7"/> </g>
 <g> <use xlink:href="#m1" x="20" style="fill: #0f0"/> </g>
</svg>"""
    assert drawing.light(heavy) == (
        '<svg><defs><path id="m1" d="M 0 0 L 0 3.5 " style="fill:#f00;opacity:0.7"/></defs>'
        '<g><text x="1.23">0.12345: a b</text></g>'
        '<g><use xlink:href="#m1" x="10.00"/></g>'
        '<g><use xlink:href="#m1" x="20" style="fill:#0f0"/></g></svg>'
    )


def test_pictures_name_their_units_floor_and_spread(report: Report) -> None:
    axes: Any = drawing.Figure().subplots()
    drawing.draw(axes, report.plots[0], report)
    assert axes.get_ylabel() == "messages/s"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["disk", "<ours>"]
    dashed = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    # A floor of 1,000,000 B/s takes 10,000 of these messages a second.
    assert list(dashed[0].get_ydata()) == [10_000] * 3
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "10", "100"]
    span = axes.containers[0].lines[2][0].get_segments()[0]
    assert [round(y) for _, y in span] == [100, 150]


def test_pictures_of_latencies_tell_time(report: Report) -> None:
    axes: Any = drawing.Figure().subplots()
    drawing.draw(axes, report.plots[1], report)
    assert axes.yaxis.get_major_formatter()(1500.0) == "1.5 ms"
    assert "aim" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_an_axis_of_times_is_named_without_their_unit(report: Report) -> None:
    def named(metric: str) -> str:
        axes: Any = drawing.Figure().subplots()
        drawing.draw(axes, Plot("times", "rows", metric), report)
        return str(axes.get_ylabel())

    assert (named("p50_us"), named("longest_call_us")) == ("p50", "longest call")


def test_numbers_for_people() -> None:
    assert label("bytes_per_s") == "MiB/s"
    assert label("peak_rss_bytes") == "peak rss, MiB"
    assert label("ns_per_message") == "ns per message"
    assert [shown_number(each) for each in (0, 0.00012, 0.5, 12.345, 1234567)] == [
        "0",
        "1.20e-04",
        "0.5",
        "12.3",
        "1,234,567",
    ]
    assert [floor.size(each) for each in (100, 1024, 1500, 3 << 20)] == [
        "100 B",
        "1 KiB",
        "1500 B",
        "3 MiB",
    ]


def test_machine_tells_what_the_numbers_are_from(tmp_path: Path) -> None:
    facts = machine.facts(tmp_path)
    for name in ("processor", "cores", "memory", "kernel", "python", "pyarrow", "pyqstore"):
        assert facts[name]
    assert facts["file system"]
    assert machine.in_memory({"file system": "tmpfs"})
    assert not machine.in_memory({"file system": "ext4"})

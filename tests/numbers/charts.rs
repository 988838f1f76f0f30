//! Charts as text and as SVG: the same points in the same places, whatever the data and the room.

use attnscope_report::chart::{Axis, Chart, Figure, Mark, Series, Stroke};
use attnscope_report::drawing::{Drawing, Shape, Stroke as Stroked, draw_figures, svg};
use attnscope_screen::{Depth, Theme, draw_chart, figure_text};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

fn chart(series: Vec<Series>) -> Chart {
    Chart {
        title: "a title".to_owned(),
        x: Axis::logarithmic("scale").from(0.01).to(100.0),
        y: Axis::linear("share").from(0.0).to(1.0),
        series,
        marks: Vec::new(),
    }
}

fn alone(chart: Chart) -> Figure {
    Figure {
        title: "a figure".to_owned(),
        charts: vec![chart],
        n_columns: 1,
    }
}

fn drawn_on_paper(chart: Chart) -> Drawing {
    draw_figures(&[alone(chart)])
}

/// The lines of a drawing whose strokes have one of the widths of series.
fn curves(drawing: &Drawing) -> Vec<(&[(f64, f64)], &Stroked)> {
    let lines = drawing.shapes.iter().filter_map(|shape| match shape {
        Shape::Line { points, stroke } => Some((points.as_slice(), stroke)),
        _ => None,
    });
    lines
        .filter(|(_, stroke)| LOOKS.contains(&stroke.colour))
        .collect()
}

/// Colours of the first three series.
const LOOKS: [[u8; 3]; 3] = [[0, 114, 178], [213, 94, 0], [0, 158, 115]];

/// The ends of the plot: left, right, top, bottom of its axes.
fn plot(drawing: &Drawing) -> (f64, f64, f64, f64) {
    let axes = drawing.shapes.iter().find_map(|shape| match shape {
        Shape::Line { points, .. } if points.len() == 3 => Some(points),
        _ => None,
    });
    let [(left, top), (_, bottom), (right, _)] = axes.expect("axes")[..] else {
        panic!("axes are one line through three points");
    };
    (left, right, top, bottom)
}

#[test]
fn a_point_stands_at_its_share_of_both_axes_in_text_and_on_paper() {
    // 1 is the middle of 0.01 … 100.
    let figure = alone(chart(vec![
        Series::dots("measured", vec![(1.0, 0.25)]),
        Series::dots("others", vec![(0.01, 1.0), (100.0, 0.0)]),
    ]));
    let drawing = draw_figures(std::slice::from_ref(&figure));
    let (left, right, top, bottom) = plot(&drawing);
    let dots = drawing.shapes.iter().filter_map(|shape| match shape {
        Shape::Dot { at, .. } => Some(*at),
        _ => None,
    });
    // Those of the legend are above the plot.
    let places: Vec<(f64, f64)> = dots.filter(|(_, y)| *y >= top - 0.01).collect();
    let expected = [
        (0.5 * (left + right), bottom - 0.25 * (bottom - top)),
        (left, top),
        (right, bottom),
    ];
    for (found, expected) in places.iter().zip(expected) {
        assert!(
            (found.0 - expected.0).abs() < 0.01 && (found.1 - expected.1).abs() < 0.01,
            "{found:?} {expected:?}"
        );
    }
    assert_eq!(places.len(), 3);
    let text = figure_text(&figure, 64);
    let rows: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let cell = |glyph: char| {
        let rows = rows.iter().enumerate().skip(4);
        let cells = rows.flat_map(|(y, row)| row.iter().enumerate().map(move |(x, c)| (x, y, *c)));
        cells
            .filter(|(_, _, c)| *c == glyph)
            .map(|(x, y, _)| (x, y))
            .collect::<Vec<_>>()
    };
    let axis = rows
        .iter()
        .position(|row| row.contains(&'└'))
        .expect("an axis");
    let (first, last) = (
        rows[axis].iter().position(|c| *c == '└').expect("a corner") + 1,
        rows[axis].len() - 1,
    );
    let top = rows
        .iter()
        .position(|row| row.contains(&'│'))
        .expect("an axis");
    assert_eq!(cell('■'), [(first, top), (last, axis - 1)]);
    let (x, y) = cell('●')[0];
    assert!(
        x.abs_diff((first + last) / 2) <= 1,
        "{x} between {first} and {last}"
    );
    let from_below = (axis - 1 - y) as f64 / (axis - 1 - top) as f64;
    assert!((from_below - 0.25).abs() < 0.07, "{from_below}");
}

#[test]
fn a_line_breaks_where_a_value_has_no_place() {
    let points = vec![
        (0.1, 0.2),
        (0.2, 0.3),
        (0.0, 0.4),
        (0.5, f64::NAN),
        (1.0, 0.5),
        (2.0, f64::INFINITY),
        (5.0, 0.1),
        (9.0, 0.2),
    ];
    let drawing = drawn_on_paper(chart(vec![Series::line("one", points)]));
    let lengths: Vec<usize> = curves(&drawing).iter().map(|(at, _)| at.len()).collect();
    assert_eq!(lengths, [2, 1, 2]);
    let picture = svg(&drawing);
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
}

#[test]
fn a_line_ends_where_it_leaves_the_axes() {
    // From within to far above, and back.
    let points = vec![(0.1, 0.5), (1.0, 2.5), (10.0, 0.5)];
    let drawing = drawn_on_paper(chart(vec![Series::line("one", points)]));
    let (_, _, top, bottom) = plot(&drawing);
    let curves = curves(&drawing);
    assert_eq!(curves.len(), 2);
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.02, "{found}");
    for (line, at_top) in [(curves[0].0, 1), (curves[1].0, 0)] {
        near(line[at_top].1, top);
        near(line[1 - at_top].1, 0.5 * (top + bottom));
    }
}

#[test]
fn nothing_to_draw_is_said() {
    for points in [vec![], vec![(1.0, f64::NAN)], vec![(-1.0, 0.5), (0.0, 0.5)]] {
        let mut empty = chart(vec![Series::line("one", points)]);
        (empty.x.ends, empty.y.ends) = ((None, None), (None, None));
        let figure = alone(empty);
        assert!(figure_text(&figure, 80).contains("no finite value to draw"));
        let drawing = draw_figures(&[figure]);
        assert!(
            drawing
                .texts()
                .any(|text| text == "no finite value to draw")
        );
    }
    let nothing = Figure {
        title: "none".to_owned(),
        charts: Vec::new(),
        n_columns: 3,
    };
    assert!(figure_text(&nothing, 80).contains("none"));
    let drawing = draw_figures(&[nothing]);
    assert!(drawing.height > 0.0 && drawing.texts().any(|text| text == "none"));
}

fn full() -> Chart {
    let curve = |factor: f64| {
        (0..60)
            .map(|i| (0.02 * 1.15f64.powi(i), (factor * f64::from(i)).sin().abs()))
            .collect()
    };
    Chart {
        marks: vec![
            Mark {
                at: 1.0,
                label: "now".to_owned(),
            },
            Mark {
                at: 99.0,
                label: "a long label at the very end".to_owned(),
            },
            Mark {
                at: 1e9,
                label: "outside".to_owned(),
            },
        ],
        ..chart(vec![
            Series::line("first", curve(0.05)),
            Series {
                name: "edge".to_owned(),
                stroke: Stroke::Edge { of: 0 },
                points: curve(0.06),
            },
            Series::area("second", curve(0.07)),
            Series::dots("third", curve(0.09)),
        ])
    }
}

#[test]
fn every_room_is_drawn_in_and_nothing_is_drawn_outside_of_it() {
    for (width, height) in (0..50).flat_map(|w| (0..26).map(move |h| (w, h))) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 60, 30));
        let area = Rect::new(3, 2, width, height);
        draw_chart(&full(), area, &mut buffer, &Theme::new(Depth::None));
        for y in 0..30 {
            for x in 0..60 {
                let is_inside = area.contains((x, y).into());
                assert!(
                    is_inside || buffer[(x, y)].symbol() == " ",
                    "{width}×{height}: {x}, {y}"
                );
            }
        }
    }
    let mut small = Buffer::empty(Rect::new(0, 0, 10, 5));
    draw_chart(
        &full(),
        Rect::new(5, 2, 100, 100),
        &mut small,
        &Theme::new(Depth::Truecolor),
    );
}

#[test]
fn series_are_told_apart_without_colour_and_marks_outside_are_not_drawn() {
    let figure = alone(full());
    let text = figure_text(&figure, 80);
    for named in ["● first", "■ second", "▲ third", "now", "share"] {
        assert!(text.contains(named), "{named} in\n{text}");
    }
    assert!(!text.contains("outside") && !text.contains("edge"));
    assert!(text.lines().all(|line| line.chars().count() <= 80));
    let drawing = draw_figures(&[figure]);
    let words: Vec<&str> = drawing.texts().collect();
    for named in ["first", "edge", "second", "third", "now"] {
        assert!(words.contains(&named), "{named} in {words:?}");
    }
    assert!(!words.contains(&"outside"));
    // An edge looks like the line it belongs to, and is thinner.
    let (_, _, top, _) = plot(&drawing);
    let curves = curves(&drawing).into_iter();
    let inside = curves.filter(|(points, _)| points.iter().all(|(_, y)| *y >= top - 0.02));
    let strokes: Vec<&Stroked> = inside.map(|(_, stroke)| stroke).collect();
    assert_eq!(strokes[0].colour, strokes[1].colour);
    assert!(strokes[0].width > strokes[1].width);
    assert_ne!(strokes[0].colour, strokes[2].colour);
}

#[test]
fn charts_stand_side_by_side_while_there_is_room() {
    let figure = Figure {
        title: "four".to_owned(),
        charts: vec![full(); 4],
        n_columns: 4,
    };
    let titles_of = |width: u16| -> Vec<usize> {
        let text = figure_text(&figure, width);
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= width.into()),
            "{text}"
        );
        let counts = text.lines().map(|line| line.matches("a title").count());
        counts.filter(|n| *n > 0).collect()
    };
    assert_eq!(titles_of(120), [4]);
    assert_eq!(titles_of(60), [2, 2]);
    assert_eq!(titles_of(30), [1, 1, 1, 1]);
}

#[test]
fn names_are_text_in_a_picture_whatever_they_hold() {
    let mut odd = chart(vec![
        Series::line("<script>&\"'", vec![(1.0, 0.5), (2.0, 0.6)]),
        Series::line("q·k/√d", vec![(1.0, 0.4), (2.0, 0.3)]),
    ]);
    odd.title = "a < b & c".to_owned();
    let drawing = drawn_on_paper(odd);
    let words: Vec<&str> = drawing.texts().collect();
    assert!(
        words.contains(&"<script>&\"'")
            && words.contains(&"a < b & c")
            && words.contains(&"q·k/√d")
    );
    assert!(!svg(&drawing).contains("<script>"));
}

/// Cells with dots of a line.
fn dots(buf: &Buffer) -> Vec<(u16, u16)> {
    let places = buf.area.positions();
    let is_dots = |symbol: &str| {
        let first = symbol.chars().next().map_or(0, u32::from);
        (0x2801..0x2900).contains(&first)
    };
    let found = places.filter(|at| is_dots(buf[*at].symbol()));
    found.map(|at| (at.x, at.y)).collect()
}

fn drawn(chart: &Chart, depth: Depth) -> Buffer {
    let area = Rect::new(0, 0, 60, 20);
    let mut buf = Buffer::empty(area);
    draw_chart(chart, area, &mut buf, &Theme::new(depth));
    buf
}

#[test]
fn data_lies_above_the_level_it_is_judged_by() {
    // A curve on its level, one that crosses it, and one that comes close to it: none of them has a gap.
    let curves: [fn(f64) -> f64; 3] = [|_| 1.0, |x| 2.0 * x / 100.0, |x| 1.0 - 0.01 * (x / 100.0)];
    for curve in curves {
        let points: Vec<(f64, f64)> = (0..=100).map(f64::from).map(|x| (x, curve(x))).collect();
        let of = |levels: &[f64]| Chart {
            x: Axis::linear("step"),
            y: Axis::linear("value").from(0.0).to(2.0),
            series: std::iter::once(Series::line("", points.clone()))
                .chain(levels.iter().map(|at| Series::rule("", (0.0, 100.0), *at)))
                .collect(),
            ..chart(Vec::new())
        };
        let alone = drawn(&of(&[]), Depth::Truecolor);
        let style = |buf: &Buffer, at: (u16, u16)| (buf[at].symbol().to_owned(), buf[at].fg);
        let judged = drawn(&of(&[0.0, 1.0]), Depth::Truecolor);
        let curve = dots(&alone);
        assert!(curve.len() > 40);
        for at in &curve {
            assert_eq!(style(&judged, *at), style(&alone, *at), "{at:?}");
        }
        assert!(
            dots(&judged).len() > curve.len(),
            "the levels show beside it"
        );
    }
}

#[test]
fn two_curves_in_one_cell_both_show() {
    let points = |y: f64| (0..=100).map(|x| (f64::from(x), y)).collect::<Vec<_>>();
    let both = Chart {
        x: Axis::linear("step"),
        y: Axis::linear("value").from(0.0).to(1.0),
        series: vec![
            Series::line("", points(0.50)),
            Series::line("", points(0.52)),
        ],
        ..chart(Vec::new())
    };
    let one = Chart {
        series: vec![Series::line("", points(0.52))],
        ..both.clone()
    };
    let n_dots = |chart: &Chart| -> u32 {
        let buf = drawn(chart, Depth::None);
        let cells = dots(&buf).into_iter();
        let letter = |at| buf[at].symbol().chars().next().map_or(0, u32::from);
        cells.map(|at| (letter(at) - 0x2800).count_ones()).sum()
    };
    assert_eq!(n_dots(&both), 2 * n_dots(&one));
}

#[test]
fn labels_of_marks_stand_above_the_plot_and_cut_no_curve() {
    let points: Vec<(f64, f64)> = (0..=100)
        .map(|i| (10f64.powf(f64::from(i) / 25.0 - 2.0), 0.97))
        .collect();
    let curve = Chart {
        x: Axis::logarithmic("scale").from(0.01).to(100.0),
        series: vec![Series::line("", points)],
        ..chart(Vec::new())
    };
    let mark = |at: f64, label: &str| Mark {
        at,
        label: label.to_owned(),
    };
    let marked = Chart {
        marks: vec![
            mark(1.0, "now"),
            mark(1.2, "1/sqrt d"),
            mark(60.0, "a long label"),
        ],
        ..curve.clone()
    };
    let buf = drawn(&marked, Depth::None);
    let rows: Vec<u16> = dots(&buf).into_iter().map(|(_, y)| y).collect();
    let columns = dots(&buf).len();
    assert_eq!(
        columns,
        dots(&drawn(&curve, Depth::None)).len(),
        "the curve is whole"
    );
    let top = rows.iter().min().copied().expect("a curve");
    let line = |y: u16| -> String { (0..60).map(|x| buf[(x, y)].symbol()).collect() };
    for label in ["now", "1/sqrt d", "a long label"] {
        let y = (0..20).find(|y| line(*y).contains(label));
        assert!(y.expect(label) < top, "{label}");
    }
    // The same in a picture: the foot of each label is above the plot.
    let drawing = drawn_on_paper(marked);
    let (_, _, plot_top, _) = plot(&drawing);
    let labels = drawing.shapes.iter().filter_map(|shape| match shape {
        Shape::Text(text) => Some(text),
        _ => None,
    });
    let labels = labels.filter(|text| ["now", "1/sqrt d", "a long label"].contains(&&*text.text));
    let feet: Vec<f64> = labels.map(|text| text.at.1).collect();
    assert_eq!(feet.len(), 3);
    assert!(feet.iter().all(|y| *y < plot_top), "{feet:?} {plot_top}");
}

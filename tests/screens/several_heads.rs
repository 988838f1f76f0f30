//! Several heads: marked by keys, dropped by one what-if, shown side by side, and exported.

use attnscope_prompt::Request;
use attnscope_screen::{Depth, Effect, Export, Msg, Panel};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple to the old king";

fn demo() -> Screen {
    Screen::open(None, Request::text(TEXT), (120, 40), Depth::None)
}

fn marked(screen: &Screen) -> String {
    let places = screen.app.marks.places();
    let names: Vec<String> = places.iter().map(ToString::to_string).collect();
    names.join(" ")
}

fn shift(screen: &mut Screen, code: KeyCode) {
    screen.send(Msg::Key(KeyEvent::new(code, KeyModifiers::SHIFT)));
}

#[test]
fn heads_are_marked_one_by_one_as_a_range_and_by_a_filter() {
    let mut screen = demo();
    screen.typed(" ll ");
    assert_eq!(marked(&screen), "L0H0 L0H2");
    assert!(
        screen.text().contains(" 2 marked heads · D drops"),
        "{}",
        screen.text()
    );
    screen.typed(" ");
    assert_eq!(marked(&screen), "L0H0");
    shift(&mut screen, KeyCode::Right);
    shift(&mut screen, KeyCode::Down);
    assert_eq!(marked(&screen), "L0H0 L0H2 L0H3 L1H2 L1H3");
    shift(&mut screen, KeyCode::Up);
    assert_eq!(marked(&screen), "L0H0 L0H2 L0H3");
    screen.typed("U/L1");
    screen.key(KeyCode::Enter);
    screen.typed("*");
    assert_eq!(marked(&screen), "L1H0 L1H1 L1H2 L1H3");
    screen.typed("*");
    assert!(marked(&screen).is_empty());
}

#[test]
fn a_message_that_is_too_long_for_one_line_is_read_on_several() {
    let mut screen = demo();
    screen.resize(60, 20);
    screen.typed("*");
    let text = screen.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[18].starts_with(" / filters the heads"), "{text}");
    assert!(lines[19].ends_with("marks all of them"), "{text}");
    screen.typed("j");
    assert!(screen.text().contains("pane 1 of"), "{}", screen.text());
}

#[test]
fn marked_heads_are_dropped_by_one_what_if() {
    let mut screen = demo();
    screen.typed(" l D");
    let text = screen.text();
    assert!(text.contains("WHAT IF drop=zero@L0H0,L0H1"), "{text}");
    let runs = screen.app.scene().both_runs().expect("both");
    assert!(runs[1].outcome().is_some());
    // The list of what-ifs has them as one, and any other what-if can be of the marked heads.
    screen.typed("w");
    assert!(
        screen.text().contains(" 2 marked heads "),
        "{}",
        screen.text()
    );
    screen.key(KeyCode::BackTab);
    screen.typed("temperature=3");
    screen.key(KeyCode::Enter);
    let text = screen.text();
    assert!(text.contains("temperature=3@L0H0,L0H1"), "{text}");
}

#[test]
fn marked_heads_stand_side_by_side_and_are_written_as_a_table_and_as_a_figure() {
    let mut screen = demo();
    screen.typed("C");
    assert!(
        screen.text().contains("no head is marked"),
        "{}",
        screen.text()
    );
    screen.typed(" ]] C");
    assert_eq!(screen.app.panel, Panel::Compare);
    let text = screen.text();
    assert!(
        text.contains("┌ L0H0") && text.contains("┌ ▸L0H2"),
        "{text}"
    );
    screen.key(KeyCode::Left);
    assert_eq!(screen.app.selection.head().to_string(), "L0H0");
    let export = Export::of(&screen.app, false).expect("an export");
    assert!(export.name.ends_with("compare-marked"), "{}", export.name);
    let mut table = csv::Reader::from_reader(export.csv.as_slice());
    let names = table.headers().expect("names").clone();
    let column = |name: &str| {
        names
            .iter()
            .position(|known| known == name)
            .expect("a column")
    };
    let (head, statistic, value) = (column("head"), column("statistic"), column("before"));
    let rows: Vec<_> = table.records().map(|row| row.expect("a row")).collect();
    let entropies: Vec<(&str, f64)> = rows
        .iter()
        .filter(|row| &row[statistic] == "entropy")
        .map(|row| (&row[head], row[value].parse().expect("a number")))
        .collect();
    let layer = &screen.app.scene().layers_of(attnscope_spec::Stack::Only)[0];
    let entropy = |idx: usize| {
        layer.heads[idx]
            .stats
            .of(attnscope_checks::stats::Stat::Entropy)
    };
    assert_eq!(entropies, [("0", entropy(0)), ("2", entropy(2))]);
    let figure = Export::asked_for(&screen.app, &Effect::ExportFigure).expect("a figure");
    let svg = String::from_utf8(figure.picture).expect("text");
    assert!(svg.contains("L0H0") && svg.contains("L0H2"));
    // The command that is copied draws the same.
    screen.app.target = Some(vec!["runs/a".to_owned()]);
    screen.typed("yc");
    let command = screen.copied.clone().expect("a command");
    assert!(
        command.contains("--panel compare --at L0H0 --mark L0H0,L0H2 "),
        "{command}"
    );
    // Without marks, Compare is about A and B again.
    screen.typed("U");
    assert!(
        screen.text().contains("There is no second run"),
        "{}",
        screen.text()
    );
}

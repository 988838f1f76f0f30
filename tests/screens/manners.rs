//! What a person may expect of every screen: its colours, its keys, its clipboard, bookmarks, and the mouse.

use std::collections::BTreeSet;

use attnscope_checks::stats::Stat;
use attnscope_prompt::Request;
use attnscope_screen::{Depth, Panel, Setup, Theme};
use attnscope_system::config::Config;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use testing::screen::Screen;

const TEXT: &str =
    "the old king gave a red apple to his horse . the old king gave a red apple to his horse .";

fn demo(size: (u16, u16), depth: Depth) -> Screen {
    Screen::open(None, Request::text(TEXT), size, depth)
}

fn with_settings(screen: &mut Screen, settings: &str) {
    let config = Config::of_text("c.toml".as_ref(), settings);
    assert_eq!(config.problems, Vec::<String>::new());
    let setup = Setup::of(&config, |_| None).expect("no conflict");
    screen.app.set_up(setup);
}

/// The place of a text on screen: its first column, and its row.
fn find(screen: &mut Screen, text: &str) -> (u16, u16) {
    let shown = screen.text();
    let found = shown.lines().enumerate().find_map(|(row, line)| {
        let at = line.find(text)?;
        Some((line[..at].chars().count() as u16, row as u16))
    });
    found.unwrap_or_else(|| panic!("no {text:?} in\n{shown}"))
}

/// Colours of half-blocks in the part of a frame above its legend, and those of the legend.
fn map_and_legend(buffer: &Buffer, theme: &Theme, legend_row: u16) -> [BTreeSet<String>; 2] {
    let heat: BTreeSet<String> = (0..=200)
        .map(|i| theme.heat(i as f32 / 200.0).to_string())
        .collect();
    let colours = |rows: std::ops::Range<u16>, is_map: bool| {
        let cells = rows.flat_map(|y| (1..buffer.area.width / 2).map(move |x| (x, y)));
        let cells = cells.map(|at| &buffer[at]);
        let cells = cells.filter(|cell| !is_map || cell.symbol() == "▀");
        let all = cells.flat_map(|cell| [cell.fg, cell.bg]);
        let all = all.filter(|colour| *colour != Color::Reset);
        all.map(|colour| colour.to_string())
            .filter(|colour| is_map || heat.contains(colour))
            .collect()
    };
    [
        colours(3..legend_row, true),
        colours(legend_row..legend_row + 1, false),
    ]
}

#[test]
fn a_map_has_no_colour_that_its_legend_lacks() {
    for depth in [Depth::Indexed, Depth::Sixteen] {
        for size in [(80, 24), (120, 40)] {
            let mut screen = demo(size, depth);
            screen.go(Panel::Head);
            let legend_row = size.1 - 3;
            let theme = screen.app.theme.clone();
            let [map, legend] = map_and_legend(&screen.frame(), &theme, legend_row);
            assert!(map.len() >= 3, "{depth:?} {size:?}: {map:?}");
            assert!(
                map.is_subset(&legend),
                "{depth:?} {size:?}: {map:?} {legend:?}"
            );
            assert_eq!(Some(legend.len()), theme.n_steps(), "{depth:?} {size:?}");
        }
    }
}

#[test]
fn no_frame_has_colours_that_the_terminal_does_not_have() {
    for depth in [Depth::Indexed, Depth::Sixteen, Depth::None] {
        let mut screen = demo((120, 40), depth);
        for panel in [
            Panel::Overview,
            Panel::Head,
            Panel::Scores,
            Panel::Tokens,
            Panel::Checks,
        ] {
            screen.go(panel);
            for cell in &screen.frame().content {
                for colour in [cell.fg, cell.bg] {
                    let is_fine = match colour {
                        Color::Rgb(..) => false,
                        Color::Indexed(_) => depth == Depth::Indexed,
                        Color::Reset => true,
                        _ => depth == Depth::Sixteen,
                    };
                    assert!(is_fine, "{depth:?} {panel:?}: {cell:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_selected_tints_no_cell_of_a_map() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    screen.go(Panel::Head);
    let before = screen.frame();
    screen.typed("hk");
    let after = screen.frame();
    let is_map = |buffer: &Buffer, at: (u16, u16)| buffer[at].symbol() == "▀";
    let places = (3..36).flat_map(|y| (11..70).map(move |x| (x, y)));
    let both: Vec<(u16, u16)> = places
        .filter(|at| is_map(&before, *at) && is_map(&after, *at))
        .collect();
    assert!(both.len() > 100);
    for at in both {
        assert_eq!(before[at], after[at], "{at:?}");
    }
}

#[test]
fn remapped_keys_are_what_footer_help_palette_and_tabs_show() {
    let mut screen = demo((120, 40), Depth::None);
    with_settings(
        &mut screen,
        "[keys]\nwhat-if = \"Ctrl-W\"\ngo-head = \"F2\"\nhelp = \"F1\"\nopen-head = \"O\"\n",
    );
    let text = screen.text();
    assert!(text.contains(" F2 Head"), "{text}");
    assert!(
        text.contains("Ctrl-W what if") && text.contains("O open head"),
        "{text}"
    );
    screen.typed("w2?");
    assert_eq!(screen.app.panel, Panel::Overview);
    assert!(screen.app.overlay.is_none());
    screen.key(KeyCode::F(1));
    let help = screen.text();
    assert!(help.contains("O         open the selected head"), "{help}");
    assert!(
        help.find("open the selected head") < help.find("Everywhere"),
        "{help}"
    );
    screen.key(KeyCode::Esc);
    screen.key(KeyCode::F(2));
    assert_eq!(screen.app.panel, Panel::Head);
    screen.send(attnscope_screen::Msg::Key(KeyEvent::new(
        KeyCode::Char('w'),
        KeyModifiers::CONTROL,
    )));
    assert!(screen.app.overlay.is_some());
    screen.key(KeyCode::Esc);
    screen.typed(":what if: change the scale");
    assert!(screen.text().contains("Ctrl-W"), "{}", screen.text());
}

#[test]
fn settings_choose_the_statistic_and_the_colours_and_the_palette_changes_them() {
    let mut screen = demo((120, 40), Depth::Truecolor);
    with_settings(
        &mut screen,
        "[screen]\nstatistic = \"max_probability\"\ncolor = \"truecolor\"\ncolor_map = \"cividis\"\n",
    );
    assert!(
        screen.text().contains("max probability · "),
        "{}",
        screen.text()
    );
    let theme = screen.app.theme.clone();
    assert_ne!(theme.heat(0.5), Theme::new(Depth::Truecolor).heat(0.5));
    screen.typed(":light theme");
    screen.key(KeyCode::Enter);
    assert_ne!(screen.app.theme.dim(), theme.dim());
    screen.typed(":map magma");
    screen.key(KeyCode::Enter);
    assert_ne!(screen.app.theme.heat(0.5), theme.heat(0.5));
    screen.typed(":colours: 16");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.theme.depth, Depth::Sixteen);
}

#[test]
fn a_number_a_row_a_place_and_a_command_are_copied() {
    let mut screen = demo((120, 40), Depth::None);
    screen.app.target = Some(vec!["my runs/a".to_owned()]);
    screen.typed("]]]]]]]2");
    screen.typed("yp");
    assert_eq!(screen.copied.as_deref(), Some("L1H3 query 21 key 0"));
    assert!(
        screen
            .text()
            .contains("copied the place: L1H3 query 21 key 0"),
        "{}",
        screen.text()
    );
    screen.typed("yr");
    let row = screen.copied.clone().expect("a row");
    assert_eq!(row.lines().next(), Some("key\ttoken\tprobability"));
    let probabilities = row.lines().skip(1).map(|line| {
        let last = line.rsplit('\t').next().expect("a field");
        last.parse::<f64>().expect("a number")
    });
    let probabilities: Vec<f64> = probabilities.collect();
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-5);
    screen.typed("yy");
    let number: f64 = screen
        .copied
        .clone()
        .expect("a number")
        .parse()
        .expect("a number");
    assert_eq!(number, probabilities[0]);
    screen.typed("yc");
    let command = screen.copied.clone().expect("a command");
    let begins =
        "attnscope plot 'my runs/a' --panel head --at 'L1H3 query 21 key 0' --text 'the old king";
    assert!(command.starts_with(begins), "{command}");
    // Esc leaves the clipboard alone.
    screen.copied = None;
    screen.typed("y");
    screen.key(KeyCode::Esc);
    screen.typed("1y");
    assert!(screen.text().contains(" copy · "));
    screen.key(KeyCode::Char('q'));
    assert!(!screen.app.is_over && screen.copied.is_none());
    with_settings(&mut screen, "[screen]\nclipboard = false\n");
    screen.typed("yp");
    assert_eq!(screen.copied, None);
    assert!(
        screen.text().contains("copying is off"),
        "{}",
        screen.text()
    );
}

#[test]
fn a_bookmark_leads_back_to_panel_place_and_statistic() {
    let mut screen = demo((120, 40), Depth::None);
    screen.typed("'");
    assert!(
        screen.text().contains("no bookmark yet"),
        "{}",
        screen.text()
    );
    screen.typed("nn]]]]]");
    let (selection, statistic_idx) = (screen.app.selection, screen.app.statistic_idx);
    screen.typed("b");
    screen.typed("4hhhb");
    let second = screen.app.selection;
    screen.typed("1[[[n");
    screen.typed("'");
    screen.key(KeyCode::Down);
    screen.key(KeyCode::Enter);
    assert_eq!(
        (screen.app.selection, screen.app.statistic_idx),
        (selection, statistic_idx)
    );
    assert_eq!(screen.app.panel, Panel::Overview);
    screen.typed("'");
    screen.key(KeyCode::Enter);
    assert_eq!(
        (screen.app.panel, screen.app.selection),
        (Panel::Tokens, second)
    );
    // Set again at the same place, it is taken back.
    screen.typed("b");
    assert_eq!(screen.app.bookmarks.len(), 1);
}

#[test]
fn hints_and_the_badge_are_clicked_and_a_cell_tells_its_value_under_the_pointer() {
    let mut screen = demo((120, 40), Depth::None);
    let (column, row) = find(&mut screen, "m statistic");
    screen.click(column + 3, row);
    assert!(screen.app.overlay.is_some());
    screen.key(KeyCode::Esc);
    let (column, row) = find(&mut screen, "? help");
    screen.click(column, row);
    assert!(screen.text().contains(" keys · "), "{}", screen.text());
    screen.key(KeyCode::Esc);
    let (column, row) = find(&mut screen, "3 notes");
    screen.click(column + 1, row);
    assert_eq!(screen.app.panel, Panel::Checks);
    screen.typed("1");
    let (column, row) = find(&mut screen, " L0  ▐");
    screen.point(column + 7, row);
    let text = screen.text();
    let told = text.lines().last().expect("a line");
    assert!(told.starts_with(" L0H0 · relative entropy: 0."), "{told}");
    screen.typed("2");
    screen.point(12, 10);
    let told = screen.text();
    assert!(
        told.lines().last().expect("a line").contains("query "),
        "{told}"
    );
    screen.key(KeyCode::Esc);
    assert!(screen.text().contains("? help"), "{}", screen.text());
    // A bar of a key beside the map.
    screen.typed("2");
    let (column, row) = find(&mut screen, "strongest keys");
    let text = screen.text();
    let line = text.lines().nth(usize::from(row) + 3).expect("a third key");
    let line: String = line.chars().skip(usize::from(column)).collect();
    let key = line.split_whitespace().nth(1).expect("an index");
    screen.click(column + 2, row + 3);
    assert_eq!(screen.app.selection.key_idx.to_string(), key, "{text}");
    screen.click(column, row - 2);
    assert_eq!(screen.app.selection.key_idx.to_string(), key);
}

#[test]
fn the_header_says_where_one_is_at_the_smallest_size() {
    let mut screen = demo((80, 24), Depth::None);
    screen.typed("]]]]]2");
    let text = screen.text();
    let header = text.lines().next().expect("a line");
    assert!(
        header.starts_with(" induction-demo › Head › L1 › H1"),
        "{header}"
    );
    assert!(header.contains("3 notes"), "{header}");
    screen.typed("5");
    assert!(
        screen.text().starts_with(" induction-demo › Model"),
        "{}",
        screen.text()
    );
}

#[test]
fn a_map_of_512_tokens_fills_half_of_a_large_panel() {
    let ids = (0..512).map(|i| 1 + i * 7 % 40).collect();
    let path = testing::root().join("fixtures/oracle/llama/model");
    let mut screen = Screen::open(Some(path), Request::ids(ids), (200, 60), Depth::Truecolor);
    screen.go(Panel::Head);
    let buffer = screen.frame();
    let n_of_map = buffer
        .content
        .iter()
        .filter(|cell| cell.symbol() == "▀" || cell.symbol() == "◆");
    let frame_width = (0..200u16)
        .find(|x| buffer[(*x, 2)].symbol() == "┐")
        .expect("a corner")
        + 1;
    let n_of_panel = usize::from(frame_width) * 57;
    // Half of the cells of a causal map are masked, and blank.
    let n_of_map = 2 * n_of_map.count();
    assert!(
        2 * n_of_map >= n_of_panel,
        "{n_of_map} of {n_of_panel} cells"
    );
    let text = screen.text();
    assert!(text.contains("1 cell = max of "), "{text}");
}

#[test]
fn a_message_of_two_lines_covers_no_frame() {
    let mut screen = demo((80, 24), Depth::None);
    for panel in [Panel::Overview, Panel::Model, Panel::Checks] {
        screen.go(panel);
        screen.typed("H");
        let text = screen.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[22].contains("no training is open"), "{text}");
        assert!(lines[21].starts_with('└'), "{text}");
    }
}

#[test]
fn only_keys_that_do_something_are_hinted() {
    let mut screen = demo((120, 40), Depth::None);
    screen.go(Panel::Compare);
    assert!(!screen.text().contains("s map"), "{}", screen.text());
    screen.typed("s");
    let text = screen.text();
    assert!(text.contains("no second run yet: press w or E"), "{text}");
    screen.typed("w");
    screen.typed("scale=none");
    screen.key(KeyCode::Enter);
    assert!(screen.text().contains("s map"), "{}", screen.text());
}

#[test]
fn a_click_on_a_statistic_chooses_it() {
    let mut screen = demo((80, 24), Depth::None);
    screen.go(Panel::Scores);
    let (column, row) = find(&mut screen, "first key");
    screen.click(column, row);
    assert_eq!(screen.app.statistic_idx, Stat::FirstKeyMass.idx());
    // The list scrolls with the choice: what is clicked is what is shown there.
    screen.typed("nnnnnnnnnnnn");
    let (column, row) = find(&mut screen, "score mean");
    screen.click(column, row);
    assert_eq!(screen.app.statistic_idx, Stat::ScoreMean.idx());
}

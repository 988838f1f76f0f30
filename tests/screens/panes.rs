//! Panes: the focus, zoom and sizes, and terminals in which only one pane has room.

use attnscope_prompt::Request;
use attnscope_screen::{Depth, Panel, Session};
use crossterm::event::KeyCode;
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple to the old king";

fn demo(size: (u16, u16)) -> Screen {
    Screen::open(None, Request::text(TEXT), size, Depth::None)
}

/// Columns of the frames in the first row of the panel.
fn widths(screen: &mut Screen) -> Vec<usize> {
    let text = screen.text();
    // The first panel has a sentence above its panes.
    let mut rows = text.lines().skip(2);
    let row = rows.find(|row| row.contains('┐')).unwrap_or_default();
    let row: Vec<char> = row.chars().collect();
    let ends = row.iter().enumerate().filter(|(_, c)| **c == '┐');
    let mut begin = 0;
    let mut widths = Vec::new();
    for (end, _) in ends {
        widths.push(end + 1 - begin);
        begin = end + 1;
    }
    widths
}

#[test]
fn the_pane_with_the_focus_fills_the_panel_and_escape_shows_all() {
    let mut screen = demo((120, 40));
    screen.typed("6..Z");
    let text = screen.text();
    assert!(!text.contains("errors in"), "{text}");
    assert!(text.contains("it matters"), "{text}");
    assert_eq!(widths(&mut screen), [120]);
    assert!(
        text.contains(" pane 2 of 2 · . next · Z shows all"),
        "{text}"
    );
    screen.typed(".");
    assert!(screen.text().contains("errors in"), "{}", screen.text());
    // Another panel is as it was.
    screen.typed("5");
    assert_eq!(widths(&mut screen).len(), 2);
    screen.typed("6");
    screen.key(KeyCode::Esc);
    assert_eq!(screen.app.panel, Panel::Checks);
    assert!(screen.text().contains("it matters"), "{}", screen.text());
}

#[test]
fn every_pane_of_every_panel_can_be_zoomed_and_sized() {
    let mut screen = demo((100, 30));
    screen.typed("wdrop=mean");
    screen.key(KeyCode::Enter);
    let is_open = |panel: &Panel| !matches!(panel, Panel::Story | Panel::History);
    for panel in Panel::ALL.into_iter().filter(is_open) {
        screen.go(panel);
        for side in 0..3 {
            for keys in [
                ".", "Z", ".", ".", ".", ".", ".", ".", "Z", "))", "((((((((", "_",
            ] {
                screen.typed(keys);
                screen.frame();
            }
            assert_eq!(screen.app.panel, panel, "{side}");
            screen.typed("v");
        }
    }
}

#[test]
fn a_border_moves_and_the_sizes_are_kept_for_the_next_session() {
    let mut screen = demo((120, 40));
    screen.typed("5");
    let before = widths(&mut screen);
    screen.typed("))");
    let after = widths(&mut screen);
    assert_eq!(after.iter().sum::<usize>(), 120);
    // The first pane is the list of tensors, on the right.
    assert_eq!(after[1], before[1] + 8);
    let session = Session::of(&screen.app);
    let text = serde_json::to_string(&session).expect("JSON");
    let kept: Session = serde_json::from_str(&text).expect("a session");
    let mut next = demo((120, 40));
    next.app.panes.growths = kept.panes;
    next.typed("5");
    assert_eq!(widths(&mut next), after);
    next.typed("_");
    assert_eq!(widths(&mut next), before);
}

#[test]
fn below_80_columns_one_pane_is_shown_and_tabs_are_digits() {
    let mut screen = demo((60, 20));
    let text = screen.text();
    assert!(text.contains(" 1 Overview 2 3 4 5 6 7 8 9 T"), "{text}");
    assert_eq!(widths(&mut screen), [60]);
    assert!(text.contains("relative entropy"), "{text}");
    screen.typed("..");
    assert!(
        screen.text().contains("L0H0 · pattern"),
        "{}",
        screen.text()
    );
    // With room for all panes, none of them is counted.
    screen.resize(120, 40);
    assert_eq!(widths(&mut screen).len(), 2);
    screen.resize(80, 24);
    assert!(!screen.text().contains("pane "), "{}", screen.text());
    screen.typed("2");
    assert!(
        screen.text().contains(" 1 2 Head 3 4 5 6 7 8 9 T"),
        "{}",
        screen.text()
    );
    screen.resize(47, 20);
    assert!(
        screen.text().contains("attnscope needs 48 × 16"),
        "{}",
        screen.text()
    );
}

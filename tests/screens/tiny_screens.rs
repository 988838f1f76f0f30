//! Every panel at sizes that no person uses: terminals have them for a moment, and some begin with them.

use attnscope_prompt::Request;
use attnscope_screen::{App, Depth, Panel, draw};
use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use testing::effort::some_of;
use testing::screen::Screen;

fn frame(app: &App, (width, height): (u16, u16)) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test backend");
    terminal.draw(|frame| draw(frame, app)).expect("draws");
}

#[test]
fn every_panel_takes_every_size_and_keys_in_it() {
    let text = Request::text("the old king gave a red apple to his horse .");
    try_sizes(Screen::open(None, text, (120, 40), Depth::Truecolor));
}

#[test]
fn so_do_panels_of_a_trace_which_predicts_nothing() {
    let trace = testing::root().join("fixtures/captured/dropped_mask.safetensors");
    let ids = Request::ids(vec![0]);
    try_sizes(Screen::open(Some(trace), ids, (120, 40), Depth::Truecolor));
}

fn try_sizes(mut screen: Screen) {
    let tiny = (0..=6).flat_map(|width| (0..=6).map(move |height| (width, height)));
    let odd = [
        (1, 300),
        (300, 1),
        (79, 24),
        (80, 23),
        (80, 24),
        (81, 25),
        (1000, 3),
        (2, 1000),
        (1000, 1000),
    ];
    for size in some_of(tiny, 8).chain(odd) {
        try_all(&mut screen, size);
    }
}

fn try_all(screen: &mut Screen, size: (u16, u16)) {
    screen.resize(size.0, size.1);
    let panels = Panel::ALL.into_iter();
    for panel in panels.filter(|panel| *panel != Panel::Story) {
        screen.go(panel);
        let keys = [
            KeyCode::Down,
            KeyCode::Up,
            KeyCode::PageDown,
            KeyCode::PageUp,
            KeyCode::Right,
            KeyCode::End,
            KeyCode::Home,
            KeyCode::Char('+'),
            KeyCode::Char('-'),
            KeyCode::Char('0'),
        ];
        keys.into_iter().for_each(|key| screen.key(key));
        for (column, row) in [(0, 0), (1, 1), (3, 2), size] {
            screen.click(column, row);
        }
        screen.go(panel);
        frame(&screen.app, size);
    }
    for overlay in ["?", "/", "e", "w"] {
        screen.typed(overlay);
        frame(&screen.app, size);
        screen.key(KeyCode::Esc);
    }
}

//! Logs of a monitor on screen: what is read of a mutant is drawn in every panel, with keys in between.

use std::path::Path;
use std::time::Instant;

use attnscope_history::{History, Origin, RereadQueue, Update, batch_of};
use attnscope_screen::{App, Depth, HistoryView, Msg, Panel, Steps, Theme, draw};
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::Target;
use crate::seeds::{Kind, Seed};

pub const SCREENS: Target = Target {
    name: "history-screens",
    n_quick: 300,
    seeds: || {
        let path = testing::root().join("fixtures/histories/jump.jsonl");
        let text = std::fs::read_to_string(path).expect("a log");
        let lines: Vec<&str> = text.lines().collect();
        let part = |from: usize, n: usize| -> Vec<u8> {
            let records = lines[1..].iter().skip(from).take(n);
            let all: Vec<&str> = std::iter::once(&lines[0]).chain(records).copied().collect();
            (all.join("\n") + "\n").into_bytes()
        };
        [part(0, 3), part(50, 12)]
            .into_iter()
            .map(|bytes| Seed::ending(Kind::Lines, "jsonl", bytes))
            .collect()
    },
    tokens: &[
        "\"step\":",
        "\"values\":",
        "\"loss\":",
        "\"n_heads\":",
        "\"statistics\":",
        "entropy_relative",
        "null",
        "NaN",
        "1e400",
        "-1",
        "18446744073709551615",
        "[[]]",
    ],
    read,
};

fn read(path: &Path) -> Result<(), String> {
    // A log is text: what is none is refused before it is read as one.
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    let text = String::from_utf8(bytes).map_err(|e| e.to_string())?;
    let batch = batch_of("log", &text).map_err(|e| e.to_string())?;
    let history = History::new("log".to_owned(), Origin::Log);
    let steps = Steps::Files(Box::default(), RereadQueue::default());
    let mut view = HistoryView::new(history, steps);
    view.take(vec![Update::Log(batch), Update::CaughtUp], Instant::now());
    let mut app = App::new(Theme::new(Depth::None), (80, 24), "log".to_owned());
    app.show_training(view);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(80, 24));
    let mut press = |app: &mut App, code: KeyCode| {
        app.update(Msg::Key(KeyEvent::from(code)));
        let Ok(_) = terminal.draw(|frame| draw(frame, app));
    };
    for panel in Panel::ALL {
        let key = panel.key();
        press(&mut app, KeyCode::Char(key));
        press(&mut app, KeyCode::End);
    }
    press(&mut app, KeyCode::Char('H'));
    let keys = ['g', 'f', 'F', 'n', 'G', 'f', ']', '}', 'n', 'n', '{', 'p'];
    for key in keys {
        press(&mut app, KeyCode::Char(key));
    }
    Ok(())
}

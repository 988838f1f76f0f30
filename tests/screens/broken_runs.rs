//! Internal errors on the worker's threads: the run is marked, and everything else stays usable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use attnscope::bundles::BUNDLES;
use attnscope_checkpoint::Opening;
use attnscope_prompt::Request;
use attnscope_screen::{App, Depth, Msg, Theme, draw};
use attnscope_worker::{Event, PromptOrigin, Terms, Worker};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const TEXT: &str = "the old king gave a red apple to his horse .";

/// The demo, with a worker that panics once, on a thread of its own: where it tells what `breaks` picks.
struct Broken {
    app: App,
    worker: Worker,
    events: mpsc::Receiver<Event>,
}

impl Broken {
    fn open(breaks: impl Fn(&Event) -> bool + Send + Sync + 'static) -> Self {
        let (sender, events) = mpsc::channel();
        let opening = Opening {
            bundle: Some(&BUNDLES[0]),
            ..Opening::default()
        };
        let first = Box::new(|_: &_, _| Ok((Request::text(TEXT), PromptOrigin::Asked)));
        let is_due = AtomicBool::new(true);
        let sink = Arc::new(move |event: Event| {
            if breaks(&event) && is_due.swap(false, Ordering::SeqCst) {
                panic!("index 7 is\nout of bounds");
            }
            drop(sender.send(event));
        });
        Self {
            app: App::new(Theme::new(Depth::Truecolor), (120, 40), "a demo".to_owned()),
            worker: Worker::start(
                opening,
                first,
                Terms {
                    is_forced: true,
                    ..Terms::default()
                },
                sink,
            ),
            events,
        }
    }

    /// Takes in what the worker tells until something holds.
    fn until(&mut self, holds: impl Fn(&App) -> bool) {
        while !holds(&self.app) {
            let event = self.events.recv_timeout(Duration::from_secs(60));
            self.send(Msg::Worker(event.expect("the worker tells")));
        }
    }

    fn send(&mut self, msg: Msg) {
        for effect in self.app.update(msg) {
            effect.ask(&self.worker);
        }
    }

    fn typed(&mut self, text: &str) {
        for c in text.chars() {
            let code = if c == '\n' {
                KeyCode::Enter
            } else {
                KeyCode::Char(c)
            };
            self.send(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        }
    }

    fn text(&self) -> String {
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("a test backend");
        let drawn = terminal
            .draw(|frame| draw(frame, &self.app))
            .expect("draws");
        drawn
            .buffer
            .content
            .iter()
            .map(|cell| cell.symbol())
            .collect()
    }
}

fn is_judged(app: &App) -> bool {
    app.scene().run().is_some_and(|run| run.judgement.is_some())
}

#[test]
fn a_run_that_breaks_is_marked_and_another_text_runs() {
    let mut screen = Broken::open(|event| matches!(event, Event::Layer { .. }));
    screen.until(|app| app.scene().run().is_some() && app.notice.is_some());
    let text = screen.text();
    assert!(text.contains("broken · e runs again"), "{text}");
    assert!(
        text.contains("internal error: index 7 is out of bounds · e runs a text"),
        "{text}"
    );
    for panel in "123456789".chars() {
        screen.typed(&panel.to_string());
        screen.text();
    }
    screen.typed("1e\n");
    screen.until(is_judged);
    assert!(!screen.text().contains("broken"));
}

#[test]
fn a_text_that_breaks_before_its_run_leaves_the_screen_usable() {
    let mut screen = Broken::open(|event| matches!(event, Event::Started { .. }));
    screen.until(|app| app.notice.is_some());
    let text = screen.text();
    assert!(text.contains("internal error"), "{text}");
    assert!(!text.contains("reading the text"), "{text}");
    // There is nothing to edit but a new text.
    screen.typed("ethe king\n");
    screen.until(is_judged);
}

#[test]
fn reading_again_recovers_what_broke() {
    let mut screen = Broken::open(|event| matches!(event, Event::Finished { .. }));
    screen.until(|app| app.notice.is_some());
    screen.typed("R");
    screen.until(is_judged);
    assert_eq!(screen.app.notice, None);
}

#[test]
fn a_question_that_breaks_is_told_and_the_next_one_is_answered() {
    let mut screen = Broken::open(|event| matches!(event, Event::Detail { .. }));
    screen.until(is_judged);
    screen.typed("2");
    screen.until(|app| app.notice.is_some());
    assert!(screen.text().contains("internal error"));
    screen.typed("]");
    screen.until(|app| app.scene().shown_detail().is_some());

    let mut screen = Broken::open(|event| matches!(event, Event::Tensor { .. }));
    screen.until(is_judged);
    screen.typed("5\n");
    screen.until(|app| app.notice.is_some());
    assert!(screen.app.model_view.stats.values().all(Option::is_some));
    screen.typed("j\n");
    let n_known = |app: &App| app.model_view.stats.values().flatten().flatten().count();
    screen.until(|app| n_known(app) == 1);
}

#[test]
fn an_opening_that_breaks_ends_with_its_message() {
    let mut screen = Broken::open(|event| matches!(event, Event::Opened { .. }));
    // Told after the files were read: the screen stays, with a notice.
    screen.until(|app| app.is_over || app.notice.is_some());
    assert!(screen.text().contains("internal error"));
}

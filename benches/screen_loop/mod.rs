//! The screen's loop with a sink in the terminal's place: the same state, worker and escape codes, nobody looking.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use attnscope::bundles::BUNDLES;
use attnscope_checkpoint::Opening;
use attnscope_prompt::Request;
use attnscope_screen::{App, Depth, Effect, Msg, Theme, draw};
use attnscope_worker::{Event, PromptOrigin, Terms, Worker};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// A message, and when it was sent.
pub type Stamped = (Instant, Msg);

pub struct ScreenLoop {
    pub app: App,
    pub worker: Worker,
    pub receiver: Receiver<Stamped>,
    pub sender: Sender<Stamped>,
    terminal: Terminal<CrosstermBackend<io::Sink>>,
    /// Questions to the worker that have no answer yet; a run is one.
    n_open: usize,
}

impl ScreenLoop {
    /// Begins to open a checkpoint, the demo when none is named.
    pub fn start(path: Option<PathBuf>, request: Request, (width, height): (u16, u16)) -> Self {
        let (sender, receiver) = mpsc::channel();
        let first = Box::new(move |_: &_, _| Ok((request, PromptOrigin::Asked)));
        let from_worker = sender.clone();
        let sink = Arc::new(move |event| {
            drop(from_worker.send((Instant::now(), Msg::Worker(event))));
        });
        let mut opening = Opening::from(path);
        opening.bundle.get_or_insert(&BUNDLES[0]);
        let worker = Worker::start(
            opening,
            first,
            Terms {
                is_forced: true,
                ..Terms::default()
            },
            sink,
        );
        let theme = Theme::new(Depth::Truecolor);
        let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
        let backend = CrosstermBackend::new(io::sink());
        Self {
            app: App::new(theme, (width, height), "a checkpoint".to_owned()),
            worker,
            receiver,
            sender,
            terminal: Terminal::with_options(backend, TerminalOptions { viewport })
                .expect("a sink takes everything"),
            n_open: 1,
        }
    }

    pub fn draw(&mut self) {
        let app = &self.app;
        let drawn = self.terminal.draw(|frame| draw(frame, app));
        drawn.expect("a sink takes everything");
    }

    /// Draws, and counts the cells of maps in the frame.
    pub fn draw_maps(&mut self) -> usize {
        let app = &self.app;
        let drawn = self.terminal.draw(|frame| draw(frame, app));
        let drawn = drawn.expect("a sink takes everything");
        let cells = drawn.buffer.content.iter();
        cells
            .filter(|cell| matches!(cell.symbol(), "▀" | "▄"))
            .count()
    }

    /// Takes in one message, and hands on what it asks of the worker.
    pub fn take_in(&mut self, msg: Msg) {
        if let Msg::Worker(event) = &msg {
            self.n_open = self.n_open.saturating_sub(usize::from(is_answer(event)));
        }
        for effect in self.app.update(msg) {
            self.n_open += usize::from(!matches!(effect, Effect::Cancel));
            effect.ask(&self.worker);
        }
    }

    /// Waits for the next message and takes it in; gives up after a time.
    pub fn wait(&mut self, at_most: Duration) {
        if let Ok((_, msg)) = self.receiver.recv_timeout(at_most) {
            self.take_in(msg);
        }
    }

    /// Takes in messages until every question has its answer.
    pub fn settle(&mut self) {
        while self.n_open > 0 && !self.app.is_over {
            self.wait(Duration::from_secs(3600));
        }
        assert!(!self.app.is_over, "{:?}", self.app.fatal);
    }
}

/// A key as the terminal gives it.
pub fn key(code: KeyCode) -> Msg {
    Msg::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// Whether an event is the last that a question brings.
fn is_answer(event: &Event) -> bool {
    matches!(
        event,
        Event::OpenFailed(_)
            | Event::Refused(_)
            | Event::Failed { .. }
            | Event::Judged { .. }
            | Event::Detail { .. }
            | Event::QuestionFailed { .. }
            | Event::Tensor { .. }
            | Event::Measured { is_last: true, .. }
            | Event::Swept { .. }
            | Event::SweptLayer { .. }
            | Event::QueryRows { .. }
            | Event::Compared { .. }
    )
}

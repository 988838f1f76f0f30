//! Plays a person at the screen: keys and clicks in, frames out, with the real worker behind it.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use attnscope::analysis::align::Alignment;
use attnscope::checkpoint::Opening;
use attnscope::ops::Device;
use attnscope::prompt::Request;
use attnscope::tui::{App, Depth, Effect, Export, Msg, Panel, Theme, draw};
use attnscope::worker::{Event, PromptOrigin, Sink, Worker};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

/// A screen without a terminal.
pub struct Screen {
    pub app: App,
    worker: Worker,
    events: Receiver<Event>,
    terminal: Terminal<TestBackend>,
    /// Questions to the worker that have no answer yet.
    n_open: usize,
    /// Where exports go.
    pub exports: Option<PathBuf>,
}

impl Screen {
    /// Opens a checkpoint (the demo when none is named) with a prompt, and waits for the end of the run.
    pub fn open(
        path: impl Into<Opening>,
        request: Request,
        size: (u16, u16),
        depth: Depth,
    ) -> Self {
        let first = Box::new(move |_: &_, _| Ok((request, PromptOrigin::Asked)));
        Self::begin(
            |sink| Worker::start(path, first, Device::Cpu, true, sink),
            size,
            depth,
        )
    }

    /// Shows an alignment of two sentences.
    pub fn of_alignment(alignment: Alignment, size: (u16, u16)) -> Self {
        let begin = |sink| Worker::start_alignment(alignment, sink);
        Self::begin(begin, size, Depth::Truecolor)
    }

    fn begin(begin: impl FnOnce(Sink) -> Worker, size: (u16, u16), depth: Depth) -> Self {
        let (sender, events) = mpsc::channel();
        let opening = "a checkpoint".to_owned();
        let mut screen = Self {
            app: App::new(Theme::new(depth), size, opening),
            worker: begin(Arc::new(move |event| drop(sender.send(event)))),
            events,
            terminal: Terminal::new(TestBackend::new(size.0, size.1)).expect("a test backend"),
            n_open: 1,
            exports: None,
        };
        screen.settle();
        screen
    }

    /// Sends what a person or the system does, and waits for what it asks of the worker.
    pub fn send(&mut self, msg: Msg) {
        for effect in self.app.update(msg) {
            if effect == Effect::Export {
                self.export();
                continue;
            }
            self.n_open += usize::from(!matches!(effect, Effect::Cancel));
            effect.ask(&self.worker);
        }
        self.settle();
    }

    fn export(&mut self) {
        let directory = self.exports.clone().expect("a directory for exports");
        let export = Export::of(&mut self.app).expect("an export");
        let asked = self.app.update(Msg::Exported(export.write(&directory)));
        assert!(asked.is_empty());
    }

    fn settle(&mut self) {
        while self.n_open > 0 && !self.app.is_over {
            let event = self
                .events
                .recv_timeout(Duration::from_secs(60))
                .expect("the worker answers");
            // A snapshot must not hold how long this machine took.
            let (event, is_answer) = match event {
                Event::Finished {
                    run,
                    outcome,
                    labels,
                    ..
                } => {
                    let took = Duration::from_millis(120);
                    let event = Event::Finished {
                        run,
                        outcome,
                        labels,
                        took,
                    };
                    // The judgement follows.
                    (event, false)
                }
                event => {
                    let is_answer = matches!(
                        event,
                        Event::OpenFailed(_)
                            | Event::Refused(_)
                            | Event::Failed { .. }
                            | Event::Judged { .. }
                            | Event::Detail { .. }
                            | Event::Part { .. }
                            | Event::DetailFailed { .. }
                            | Event::Swept { .. }
                            | Event::SweptLayer { .. }
                            | Event::Tensor { .. }
                    );
                    (event, is_answer)
                }
            };
            self.n_open -= usize::from(is_answer);
            for effect in self.app.update(Msg::Worker(event)) {
                self.n_open += 1;
                match effect {
                    Effect::LookAt(..)
                    | Effect::LookAtPart(..)
                    | Effect::Suppose(_)
                    | Effect::Sweep(_)
                    | Effect::SweepLayer(_) => {
                        effect.ask(&self.worker);
                    }
                    effect => panic!("an event asks for {effect:?}"),
                }
            }
        }
    }

    pub fn key(&mut self, code: KeyCode) {
        self.send(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    /// Types letters, one key each.
    pub fn typed(&mut self, text: &str) {
        text.chars().for_each(|c| self.key(KeyCode::Char(c)));
    }

    pub fn click(&mut self, column: u16, row: u16) {
        self.send(Msg::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }));
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        self.terminal.backend_mut().resize(width, height);
        self.send(Msg::Resize(width, height));
    }

    /// One frame.
    pub fn frame(&mut self) -> Buffer {
        let app = &self.app;
        let drawn = self.terminal.draw(|frame| draw(frame, app));
        drawn.expect("a frame").buffer.clone()
    }

    /// One frame as text.
    pub fn text(&mut self) -> String {
        let buffer = self.frame();
        let mut text = String::new();
        for y in 0..buffer.area.height {
            let row: String = (0..buffer.area.width)
                .map(|x| buffer[(x, y)].symbol())
                .collect();
            let _ = writeln!(text, "{}", row.trim_end());
        }
        text
    }

    /// One frame as text, then the colours of all heat cells.
    pub fn picture(&mut self) -> String {
        let text = without_last_digits(&self.text());
        let buffer = self.frame();
        format!(
            "{text}{}\n{}",
            self.app.panel.title(),
            heat(&buffer, &self.app.theme)
        )
    }

    pub fn go(&mut self, panel: Panel) {
        self.key(KeyCode::Char(panel.key()));
    }
}

/// Numbers with all but their first two digits hidden: the others depend on the processor's instructions.
fn without_last_digits(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut shown = String::with_capacity(text.len());
    let mut n_digits = 0;
    let mut is_fraction = false;
    for (i, c) in letters.iter().copied().enumerate() {
        let is_digit = c.is_ascii_digit();
        if c == '.' && letters.get(i + 1).is_some_and(char::is_ascii_digit) && i > 0 {
            is_fraction = letters[i - 1].is_ascii_digit();
        } else if !is_digit {
            (n_digits, is_fraction) = (0, false);
        }
        // Leading zeros carry nothing.
        if is_digit && (n_digits > 0 || c != '0') {
            n_digits += 1;
        }
        shown.push(if is_digit && is_fraction && n_digits > 2 {
            '#'
        } else {
            c
        });
    }
    shown
}

/// The colours of heat maps as digits from 0 to 9, upper half-block and lower; `.` for what is no heat colour.
fn heat(buffer: &Buffer, theme: &Theme) -> String {
    const LEVELS: usize = 256;
    let map: Vec<Color> = (0..LEVELS)
        .map(|i| theme.heat(i as f32 / (LEVELS - 1) as f32))
        .collect();
    let level = |colour: Color| {
        let at = map.iter().position(|c| *c == colour);
        at.map_or('.', |at| {
            char::from_digit((at * 10 / LEVELS) as u32, 10).expect("a digit")
        })
    };
    let mut lines = String::new();
    for y in 0..buffer.area.height {
        let halves: [String; 2] = [0, 1].map(|half| {
            (0..buffer.area.width)
                .map(|x| {
                    let cell = &buffer[(x, y)];
                    match (cell.symbol(), half) {
                        ("▀", 0) | ("▄", 1) => level(cell.fg),
                        _ => level(cell.bg),
                    }
                })
                .collect()
        });
        for half in halves {
            let line = half.trim_end_matches('.');
            let _ = writeln!(lines, "{line}");
        }
    }
    lines
}

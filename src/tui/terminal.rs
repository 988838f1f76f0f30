//! The terminal itself: taken, drawn to, and given back whatever happens.

use std::io::{self, Stdout, Write, stdout};
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crossterm::event::{
    self, DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
    Event as TermEvent,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::app::{App, Effect, Msg, Panel};
use super::export::{Export, Writer};
use super::plot::Shown;
use super::story_view::{StoryView, Storyteller};
use super::supposed::Side;
use super::theme::{Depth, Theme};
use super::view;
use crate::worker::{Event, FirstPrompt, Sink, Worker};
use attnscope_engine::analysis::WhatIf;
use attnscope_engine::analysis::align::Alignment;
use attnscope_engine::checkpoint::Opening;
use attnscope_engine::error::{Error, Result};
use attnscope_engine::ops::Device;

/// A checkpoint that cannot be opened usually says so within this time: then the screen is never taken at all.
const GRACE: Duration = Duration::from_millis(30);

/// What to open the screen with.
pub struct Start {
    /// What to open; the demo when it names no path.
    pub opening: Opening,
    pub first: FirstPrompt,
    /// Run whatever memory it takes.
    pub is_forced: bool,
    pub device: Device,
    pub in_front: InFront,
    /// Tells the story of a demo.
    pub story: Option<Storyteller>,
}

/// What is in front when the screen opens.
#[derive(Debug, Default)]
pub struct InFront {
    /// What a person is to know first.
    pub notice: Option<String>,
    /// What a person would press keys for, once the first text has its tokens.
    pub shown: Option<Shown>,
    /// What is supposed of it.
    pub what_ifs: Vec<WhatIf>,
}

/// Who does what updates ask for.
struct Hands {
    worker: Worker,
    writer: Writer,
    /// What is to be selected and supposed when the first text has its tokens.
    place: Option<Shown>,
    what_ifs: Vec<WhatIf>,
}

/// Opens the screen and stays until the person leaves.
///
/// # Errors
/// When the checkpoint or the first prompt cannot be used, or the terminal fails; the terminal is restored first.
pub fn run(start: Start) -> Result<()> {
    let opening = match &start.opening.path {
        Some(path) => path.display().to_string(),
        None => match start.opening.bundle {
            Some(bundle) => bundle.name.to_owned(),
            None => "the built-in demo".to_owned(),
        },
    };
    let (device, is_forced) = (start.device, start.is_forced);
    let begin = |sink| Worker::start(start.opening, start.first, device, is_forced, sink);
    stay(begin, opening, start.in_front, start.story)
}

/// Opens the screen with an alignment of two sentences: its one head.
///
/// # Errors
/// When the terminal fails.
pub fn run_alignment(alignment: Alignment, notice: Option<String>) -> Result<()> {
    let opening = alignment.model.checkpoint.name.clone();
    let in_front = InFront {
        notice,
        shown: Some(Shown::of(Panel::Head)),
        ..InFront::default()
    };
    stay(
        |sink| Worker::start_alignment(alignment, sink),
        opening,
        in_front,
        None,
    )
}

fn stay(
    begin: impl FnOnce(Sink) -> Worker,
    opening: String,
    in_front: InFront,
    story: Option<Storyteller>,
) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    let worker = {
        let sender = sender.clone();
        // The screen may be gone when a late event arrives: nobody misses it.
        begin(Arc::new(move |event| {
            drop(sender.send(Msg::Worker(event)));
        }))
    };
    let writer = {
        let sender = sender.clone();
        Writer::start(PathBuf::new(), move |written| {
            drop(sender.send(Msg::Exported(written)));
        })
    };
    let mut hands = Hands {
        worker,
        writer,
        place: in_front.shown.clone(),
        what_ifs: in_front.what_ifs,
    };
    let size = crossterm::terminal::size().unwrap_or((80, 24));
    let mut app = App::new(
        Theme::new(Depth::detect(|name| std::env::var(name).ok())),
        size,
        opening,
    );
    app.opening_notice = in_front.notice;
    if let Some(shown) = &in_front.shown {
        shown.begin(&mut app);
    }
    if let Some(story) = story {
        app.story = Some(StoryView::default());
        let sender = sender.clone();
        thread::spawn(move || drop(sender.send(Msg::Story(story()))));
    }
    if let Ok(msg) = receiver.recv_timeout(GRACE) {
        take_in(&mut app, &mut hands, msg);
    }
    if !app.is_over {
        listen(sender);
        show(&mut app, &mut hands, &receiver)
            .map_err(|e| Error::file("terminal", format!("cannot be used ({e})")))?;
    }
    app.fatal
        .map_or(Ok(()), |reason| Err(Error::Prompt(reason)))
}

/// Draws and waits in turn: everything that has queued is taken in before the next frame.
fn show(app: &mut App, hands: &mut Hands, receiver: &Receiver<Msg>) -> io::Result<()> {
    let guard = Guard::take()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    while !app.is_over {
        terminal.draw(|frame| view::draw(frame, app))?;
        let Ok(msg) = receiver.recv() else { break };
        take_in(app, hands, msg);
        while let Ok(msg) = receiver.try_recv() {
            take_in(app, hands, msg);
        }
    }
    drop(guard);
    Ok(())
}

fn take_in(app: &mut App, hands: &mut Hands, msg: Msg) {
    let begins = matches!(msg, Msg::Worker(Event::Started { .. }));
    let mut effects = app.update(msg);
    if begins {
        let selected = hands.place.take().map_or(Ok(()), |place| place.select(app));
        if let Err(e) = selected {
            app.notice = Some(e.to_string());
        }
        for what_if in std::mem::take(&mut hands.what_ifs) {
            app.suppose(what_if);
        }
        // A story is of the checkpoint as it is.
        if app.panel == Panel::Story {
            app.show_side(Side::Before);
        }
        effects.extend(app.update(Msg::Resize(app.size.0, app.size.1)));
    }
    for effect in effects {
        if effect != Effect::Export {
            effect.ask(&hands.worker);
            continue;
        }
        match Export::of(app) {
            Ok(export) => hands.writer.write(export),
            Err(e) => take_in(app, hands, Msg::Exported(Err(e))),
        }
    }
}

/// Turns what the person and the system do into messages, on threads that end with the program.
fn listen(sender: Sender<Msg>) {
    let signals = sender.clone();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let msg = match event {
                TermEvent::Key(key) => Msg::Key(key),
                TermEvent::Mouse(mouse) => Msg::Mouse(mouse),
                TermEvent::Paste(text) => Msg::Paste(text),
                TermEvent::Resize(width, height) => Msg::Resize(width, height),
                TermEvent::FocusGained | TermEvent::FocusLost => continue,
            };
            if sender.send(msg).is_err() {
                return;
            }
        }
        // The terminal is gone.
        let _ = sender.send(Msg::Terminate);
    });
    #[cfg(unix)]
    thread::spawn(move || {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        match signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]) {
            Ok(mut caught) => {
                if caught.forever().next().is_some() {
                    let _ = signals.send(Msg::Terminate);
                }
            }
            Err(e) => log::warn!("signals cannot be caught: {e}"),
        }
    });
    #[cfg(not(unix))]
    drop(signals);
}

/// Holds the terminal; dropping it gives the terminal back.
struct Guard;

impl Guard {
    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        // From here on, whatever fails is undone by the drop.
        let guard = Self;
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // A message printed over the alternate screen would be lost with it.
            restore();
            before(info);
        }));
        execute!(
            stdout(),
            EnterAlternateScreen,
            EnableMouseCapture,
            EnableBracketedPaste,
            cursor::Hide
        )?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let mut out: Stdout = stdout();
    // Each step is worth trying even when another failed.
    let _ = execute!(
        out,
        DisableBracketedPaste,
        DisableMouseCapture,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = disable_raw_mode();
    let _ = out.flush();
}

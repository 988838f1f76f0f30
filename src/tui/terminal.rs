//! The terminal itself: taken, drawn to, and given back whatever happens.

use std::io::{self, Stdout, Write, stdout};
use std::ops::ControlFlow;
use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(debug_assertions)]
use crossterm::event::KeyCode;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
    Event as TermEvent,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::app::{App, Effect, Msg};
use super::export::{Export, Format, Paper, Writer};
use super::history_view::{HistoryReader, HistoryView};
use super::input::read_events;
use super::known::Known;
use super::panel::Panel;
use super::plot::Shown;
use super::remembered::Remembered;
use super::runs::Shows;
use super::story_view::{StoryView, Storyteller};
use super::theme::{Depth, Theme};
use super::view;
use crate::history::Update;
#[cfg(unix)]
use crate::signals::{self, Asked};
use crate::worker::{Against, Event, FirstPrompt, Sink, UsualPrompt, Worker, caught};
use attnscope_engine::analysis::WhatIf;
use attnscope_engine::analysis::align::Alignment;
use attnscope_engine::checkpoint::Opening;
use attnscope_engine::error::{Error, Result};
use attnscope_engine::ops::Device;

/// A checkpoint that cannot be opened usually says so within this time: then the screen is never taken at all.
const GRACE: Duration = Duration::from_millis(30);
/// What has queued is taken in for so long before the next frame.
const FRAME: Duration = Duration::from_millis(50);
/// Ages are told in seconds.
const SECOND: Duration = Duration::from_secs(1);

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

/// A training to show, and what reads it as long as the screen is open.
pub struct Training {
    pub view: HistoryView,
    pub reader: Option<HistoryReader>,
}

impl std::fmt::Debug for Training {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.view.history.name;
        f.debug_struct("Training").field("name", name).finish()
    }
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
    /// What it is compared with.
    pub against: Option<Against>,
    /// The training whose history is shown.
    pub training: Option<Training>,
    /// Checkpoints beside the one that is open.
    pub beside: Vec<PathBuf>,
    /// Where prompts are kept for the next session, where they are.
    pub remembered: Option<Remembered>,
}

/// Who does what updates ask for.
struct Hands {
    worker: Worker,
    writer: Writer,
    /// What is to be selected and supposed when the first text has its tokens.
    place: Option<Shown>,
    what_ifs: Vec<WhatIf>,
    against: Option<Against>,
    remembered: Option<Remembered>,
    /// Whether the program is to stop, and whether the terminal is no longer ours.
    stops: bool,
    is_lost: bool,
    /// Whether everything is to be drawn again.
    is_resized: bool,
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

/// Opens the screen with a training; a step of it is opened when a person asks for it.
///
/// # Errors
/// When the terminal fails.
pub fn run_training(
    usual: UsualPrompt,
    device: Device,
    is_forced: bool,
    in_front: InFront,
) -> Result<()> {
    let training = in_front.training.as_ref();
    let opening = training.map_or(String::new(), |of| of.view.history.name.clone());
    let begin = |sink| Worker::waiting(usual, device, is_forced, sink);
    stay(begin, opening, in_front, None)
}

/// Opens the screen with an alignment of two sentences: its one head.
///
/// # Errors
/// When the terminal fails.
pub fn run_alignment(alignment: Alignment, notice: Option<String>) -> Result<()> {
    let opening = alignment.name();
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
    tell_panics_apart();
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
        against: in_front.against,
        remembered: in_front.remembered,
        stops: false,
        is_lost: false,
        is_resized: false,
    };
    let mut app = App::new(
        Theme::new(Depth::detect(|name| std::env::var(name).ok())),
        size(),
        opening,
    );
    app.opening_notice = in_front.notice;
    app.known = Known {
        prompts: hands
            .remembered
            .as_ref()
            .map_or(Vec::new(), Remembered::read),
        beside: in_front.beside,
    };
    if let Some(shown) = &in_front.shown {
        shown.begin(&mut app);
    }
    if let Some(Training { view, reader }) = in_front.training {
        app.show_training(view);
        if let Some(reader) = reader {
            follow(reader, sender.clone());
        }
    }
    if let Some(story) = story {
        app.story = Some(StoryView::default());
        let sender = sender.clone();
        thread::spawn(move || {
            let told = caught(story).unwrap_or_else(|said| Err(Error::Prompt(said)));
            drop(sender.send(Msg::Story(told)));
        });
    }
    if let Ok(msg) = receiver.recv_timeout(GRACE) {
        take_in(&mut app, &mut hands, msg);
    }
    if !app.is_over {
        #[cfg(unix)]
        let _claim = hear_signals(sender.clone());
        listen(sender);
        show(&mut app, &mut hands, &receiver)
            .map_err(|e| Error::file("terminal", format!("cannot be used ({e})")))?;
    }
    app.fatal
        .map_or(Ok(()), |reason| Err(Error::Prompt(reason)))
}

/// Reads a training on a thread of its own, which ends with the program.
fn follow(reader: HistoryReader, sender: Sender<Msg>) {
    thread::spawn(move || {
        let mut told = Instant::now();
        let mut sink = |updates: Vec<Update>| {
            // Without news, time passes: the screen says how old the last ones are.
            if updates.is_empty() && told.elapsed() < SECOND {
                return ControlFlow::Continue(());
            }
            told = Instant::now();
            match sender.send(Msg::History(updates)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let read = || reader(&mut sink);
        let outcome = caught(read).unwrap_or_else(|said| Err(Error::Prompt(said)));
        drop(sender.send(Msg::HistoryEnded(outcome)));
    });
}

/// Draws and waits in turn: what has queued is taken in before the next frame.
fn show(app: &mut App, hands: &mut Hands, receiver: &Receiver<Msg>) -> io::Result<()> {
    let guard = Guard::take()?;
    // It may have changed before anybody listened.
    app.size = size();
    // Of our own size, not the terminal's: a terminal may say any.
    let viewport = Viewport::Fixed(area_of(app.size));
    let mut terminal = Terminal::with_options(
        CrosstermBackend::new(stdout()),
        TerminalOptions { viewport },
    )?;
    while !app.is_over {
        // Also to the size it had: what a terminal keeps of its cells when it changes there and back is its own affair.
        if std::mem::take(&mut hands.is_resized) {
            terminal.resize(area_of(app.size))?;
        }
        terminal.draw(|frame| view::draw(frame, app))?;
        let Ok(msg) = receiver.recv() else { break };
        take_in(app, hands, msg);
        // A long log comes in many parts: the screen is drawn between them.
        let begun = Instant::now();
        while begun.elapsed() < FRAME
            && let Ok(msg) = receiver.try_recv()
        {
            take_in(app, hands, msg);
        }
        if std::mem::take(&mut hands.stops) && !app.is_over {
            stop(app);
            hands.is_lost = true;
        }
        if std::mem::take(&mut hands.is_lost) && !app.is_over {
            guard.take_again()?;
            app.size = size();
            hands.is_resized = true;
        }
    }
    drop(guard);
    Ok(())
}

/// No screen is larger; a terminal that says so would have us hold gigabytes of cells.
const LARGEST: (u16, u16) = (1000, 1000);

/// The terminal's size, as far as it is drawn on.
fn size() -> (u16, u16) {
    bounded(crossterm::terminal::size().unwrap_or((80, 24)))
}

fn bounded((width, height): (u16, u16)) -> (u16, u16) {
    (width.clamp(1, LARGEST.0), height.clamp(1, LARGEST.1))
}

fn area_of((width, height): (u16, u16)) -> Rect {
    Rect::new(0, 0, width, height)
}

/// Gives the terminal to the shell, until the shell continues the program.
fn stop(app: &mut App) {
    #[cfg(unix)]
    if signals::can_stop() {
        restore();
        signals::stop();
        return;
    }
    app.notice = Some("there is no shell to go back to".to_owned());
}

fn take_in(app: &mut App, hands: &mut Hands, msg: Msg) {
    let begins = matches!(msg, Msg::Worker(Event::Started { .. }));
    hands.is_lost |= matches!(msg, Msg::Continued);
    hands.is_resized |= matches!(msg, Msg::Resize(..));
    #[cfg(debug_assertions)]
    panic_if_asked(&msg);
    let mut effects = app.update(msg);
    if begins {
        let selected = hands.place.take().map_or(Ok(()), |place| place.select(app));
        if let Err(e) = selected {
            app.notice = Some(e.to_string());
        }
        for what_if in std::mem::take(&mut hands.what_ifs) {
            app.suppose(what_if);
        }
        if let Some(against) = hands.against.take() {
            app.must_compare_with(against);
        }
        // A story is of the checkpoint as it is.
        if app.panel == Panel::Story {
            app.show_side(Shows::A);
        }
        effects.extend(app.update(Msg::Resize(app.size.0, app.size.1)));
    }
    for effect in effects {
        match effect {
            Effect::Export => match Export::of(app, false) {
                Ok(export) => hands.writer.write(export),
                Err(e) => take_in(app, hands, Msg::Exported(Err(e))),
            },
            Effect::ExportFigure => {
                let paper = Paper::default();
                match Export::figure_of(app, &paper, Format::Svg, false) {
                    Ok(export) => hands.writer.write(export),
                    Err(e) => take_in(app, hands, Msg::Exported(Err(e))),
                }
            }
            Effect::Stop => hands.stops = true,
            Effect::Remember(prompt) => {
                let kept = hands.remembered.as_ref().map(|to| to.add(&prompt));
                // A full disk must not end a session.
                if let Some(Err(e)) = kept {
                    log::warn!("the prompt is not kept: {e}");
                }
            }
            effect => effect.ask(&hands.worker),
        }
    }
}

/// Panics as the screen itself would, for the test of what is left of the terminal. No build that anyone installs has this.
#[cfg(debug_assertions)]
fn panic_if_asked(msg: &Msg) {
    let is_asked = || std::env::var_os("ATTNSCOPE_TEST_PANIC").is_some();
    if matches!(msg, Msg::Key(key) if key.code == KeyCode::F(12)) && is_asked() {
        panic!("asked to panic");
    }
}

/// Turns what the person and the system do into messages, on threads that end with the program.
fn listen(sender: Sender<Msg>) {
    thread::spawn(move || {
        read_events(|event| {
            let msg = match event {
                TermEvent::Key(key) => Msg::Key(key),
                TermEvent::Mouse(mouse) => Msg::Mouse(mouse),
                TermEvent::Paste(text) => Msg::Paste(text),
                TermEvent::Resize(width, height) => resized((width, height)),
                TermEvent::FocusGained | TermEvent::FocusLost => return true,
            };
            sender.send(msg).is_ok()
        });
        // The terminal is gone.
        let _ = sender.send(Msg::Terminate);
    });
}

fn resized(size: (u16, u16)) -> Msg {
    let (width, height) = bounded(size);
    Msg::Resize(width, height)
}

/// Has signals told as messages, as long as what it gives is held.
#[cfg(unix)]
fn hear_signals(sender: Sender<Msg>) -> signals::Claim {
    let tell = move |asked| {
        // The screen may be gone: then it has ended already.
        let _ = sender.send(match asked {
            Asked::End => Msg::Terminate,
            Asked::Stop => Msg::Stop,
            Asked::Continue => Msg::Continued,
            Asked::Resize => {
                let (width, height) = size();
                Msg::Resize(width, height)
            }
        });
    };
    signals::claim(tell, || drop(disable_raw_mode()))
}

/// Whether there is something to give back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Holds the terminal; dropping it gives the terminal back.
struct Guard;

impl Guard {
    fn take() -> io::Result<Self> {
        // From here on, whatever fails is undone by the drop.
        let guard = Self;
        guard.begin()?;
        Ok(guard)
    }

    /// Takes it once more, after the shell had it.
    fn take_again(&self) -> io::Result<()> {
        if !is_raw() {
            // What the shell left is what to go back to.
            disable_raw_mode()?;
        }
        self.begin()
    }

    fn begin(&self) -> io::Result<()> {
        IS_TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(
            stdout(),
            EnterAlternateScreen,
            EnableMouseCapture,
            EnableBracketedPaste,
            cursor::Hide
        )
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the system gives us keys as they come: a shell that had the terminal took that back.
#[cfg(unix)]
fn is_raw() -> bool {
    use rustix::termios::{LocalModes, tcgetattr};
    tcgetattr(io::stdin()).is_ok_and(|modes| !modes.local_modes.contains(LocalModes::ICANON))
}

#[cfg(not(unix))]
fn is_raw() -> bool {
    false
}

/// Decides what a panic prints while there is a screen.
///
/// One on the thread that draws ends the program: the terminal is given back first, since a message on the alternate screen
/// would be lost with it. Others end a job that the screen tells of: they print nothing.
fn tell_panics_apart() {
    let drawing = thread::current().id();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == drawing {
            restore();
            before(info);
        } else {
            log::error!("{info}");
        }
    }));
}

fn restore() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
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

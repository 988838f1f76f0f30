//! The terminal: takes it over, draws to it, and always restores it.

use std::io::{self, Write, stdout};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use attnscope_checkpoint::Opening;
use attnscope_compute::error::{Error, Result};
use attnscope_history::Update;
use attnscope_prompt::Request;
use attnscope_run::WhatIf;
use attnscope_run::align::Alignment;
use attnscope_terminal::ground::Question;
use attnscope_terminal::guard::{Guard, restore, tell_panics_apart};
use attnscope_terminal::input::Answer;
use attnscope_worker::{
    Against, Event, FirstPrompt, LiveOpening, Sink, Terms, UsualPrompt, Worker, caught,
};
#[cfg(debug_assertions)]
use crossterm::event::KeyCode;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::background::begin_in_background;
use super::copying;
use super::export::{Export, Writer};
use super::graphics::Pictures;
#[cfg(unix)]
use super::hearing::hear_signals;
use super::hearing::{Ears, listen};
use super::outside::{edit_outside, run_outside};
use super::state::app::App;
use super::state::history_view::{HistoryReader, HistoryView};
use super::state::known::Known;
use super::state::msg::{Effect, Msg, ReadyCommand};
use super::state::panel::Panel;
use super::state::protocol::Graphics;
use super::state::remembered::{Remembered, Session};
use super::state::runs::Shows;
use super::state::setup::Setup;
use super::state::shown::Shown;
use super::state::story_view::{StoryLoader, StoryView};
use super::state::tips::tips_of;

/// Time to wait for an error on opening before taking over the terminal: most failures arrive sooner.
const GRACE: Duration = Duration::from_millis(30);
/// Longest time to process queued messages before drawing the next frame.
const FRAME: Duration = Duration::from_millis(50);
/// Ages are shown in seconds.
const SECOND: Duration = Duration::from_secs(1);

/// How to open the screen with a model.
pub struct Start {
    /// The checkpoint to open; the demo if it names no path.
    pub opening: Opening,
    pub first: FirstPrompt,
    /// A live model to show in place of the checkpoint.
    pub live: Option<LiveOpening>,
    pub terms: Terms,
    pub in_front: InitialState,
    /// Produces the story of a demo.
    pub story: Option<StoryLoader>,
}

/// A training to show, and its reader, which runs while the screen is open.
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

/// What to show when the screen opens.
#[derive(Debug, Default)]
pub struct InitialState {
    /// Notice to show first.
    pub notice: Option<String>,
    /// The view to open, once the first text is tokenized.
    pub shown: Option<Shown>,
    /// What-ifs to apply.
    pub what_ifs: Vec<WhatIf>,
    /// What to compare with.
    pub against: Option<Against>,
    /// Prompts with their ids, for the Prompts panel.
    pub prompts: Option<Vec<(String, Request)>>,
    /// The training whose history is shown.
    pub training: Option<Training>,
    /// Checkpoints next to the open one.
    pub nearby_checkpoints: Vec<PathBuf>,
    /// Prompts found next to the checkpoint, to offer.
    pub offered: Vec<Request>,
    /// Store of prompts for the next session; `None` if they are not stored.
    pub remembered: Option<Remembered>,
    /// Colours, keys and limits.
    pub setup: Setup,
    /// Command-line words that open the same thing; `None` if no command draws it.
    pub target: Option<Vec<String>>,
}

/// Carries out the effects of updates.
struct EffectRunner {
    worker: Worker,
    writer: Writer,
    /// Takes what commands of the settings say.
    sender: Sender<Msg>,
    /// View and what-ifs to apply once the first text is tokenized.
    place: Option<Shown>,
    what_ifs: Vec<WhatIf>,
    against: Option<Against>,
    remembered: Option<Remembered>,
    /// Whether to suspend the program, and whether the terminal is gone.
    stops: bool,
    is_lost: bool,
    /// Whether to redraw everything.
    is_resized: bool,
    /// A text to edit in the user's own editor.
    outside: Option<String>,
    /// A command that gets the terminal.
    lent: Option<ReadyCommand>,
    /// Query sent to the terminal, awaiting its answer.
    question: Option<Question>,
    graphics: Graphics,
    /// Whether the terminal said that it shows sixels.
    has_sixel: bool,
}

/// Opens the screen and returns when the user quits.
///
/// # Errors
/// When the checkpoint or the first prompt cannot be used, or the terminal fails. The terminal is restored first.
pub fn run(start: Start) -> Result<()> {
    let opening = match &start.opening.path {
        Some(path) => path.display().to_string(),
        None => match start.opening.bundle {
            Some(bundle) => bundle.name.to_owned(),
            None => "the built-in demo".to_owned(),
        },
    };
    let begin = |sink| match start.live {
        Some(live) => Worker::start_live(live, start.terms, sink),
        None => Worker::start(start.opening, start.first, start.terms, sink),
    };
    stay(begin, opening, start.in_front, start.story)
}

/// Opens the screen with a training; its steps are opened on request.
///
/// # Errors
/// When the terminal fails.
pub fn run_training(usual: UsualPrompt, terms: Terms, in_front: InitialState) -> Result<()> {
    let training = in_front.training.as_ref();
    let opening = training.map_or(String::new(), |of| of.view.history.name.clone());
    let begin = |sink| Worker::waiting(usual, terms, sink);
    stay(begin, opening, in_front, None)
}

/// Opens the screen with an alignment of two sentences, which has a single head.
///
/// # Errors
/// When the terminal fails.
pub fn run_alignment(
    alignment: Alignment,
    terms: Terms,
    in_front: InitialState,
    story: Option<StoryLoader>,
) -> Result<()> {
    let opening = alignment.name();
    let panel = story.as_ref().map_or(Panel::Head, |_| Panel::Story);
    let in_front = InitialState {
        shown: Some(Shown::of(panel)),
        ..in_front
    };
    stay(
        |sink| Worker::start_alignment(alignment, terms, sink),
        opening,
        in_front,
        story,
    )
}

fn stay(
    begin: impl FnOnce(Sink) -> Worker,
    opening: String,
    in_front: InitialState,
    story: Option<StoryLoader>,
) -> Result<()> {
    tell_panics_apart();
    let (sender, receiver) = mpsc::channel();
    let worker = {
        let sender = sender.clone();
        // The screen may have closed before a late event arrives.
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
    let mut hands = EffectRunner {
        worker,
        writer,
        sender: sender.clone(),
        place: in_front.shown.clone(),
        what_ifs: in_front.what_ifs,
        against: in_front.against,
        remembered: in_front.remembered,
        stops: false,
        is_lost: false,
        is_resized: false,
        outside: None,
        lent: None,
        question: None,
        graphics: in_front.setup.graphics,
        has_sixel: false,
    };
    let setup = in_front.setup;
    let (asks_ground, takes_mouse) = (setup.asks_ground, setup.takes_mouse);
    let mut app = App::new(setup.theme.clone(), size(), opening);
    app.set_up(setup);
    app.target = in_front.target;
    app.asks_by_itself = true;
    let session = hands.remembered.as_ref().and_then(Remembered::session);
    if let Some(session) = session {
        (app.bookmarks, app.panes.growths) = (session.bookmarks, session.panes);
    }
    app.tips = tips_of(hands.remembered.as_ref(), &app.keys);
    app.opening_notice = in_front.notice;
    app.known = Known {
        nearby_checkpoints: in_front.nearby_checkpoints,
        limits: app.limits,
        ..Known::default()
    };
    let read = hands.remembered.as_ref().map(Remembered::read);
    app.known.offer(&in_front.offered, read.unwrap_or_default());
    if let Some(prompts) = in_front.prompts {
        app.give_prompts(prompts);
    }
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
        let unusable = |e| Error::file("terminal", format!("cannot be used ({e})"));
        let terminal = TerminalSetup {
            asks_ground,
            takes_mouse,
            ears: listen(sender).map_err(unusable)?,
        };
        show(&mut app, &mut hands, &receiver, terminal).map_err(unusable)?;
    }
    if let Some(remembered) = &hands.remembered
        && app.fatal.is_none()
        && let Err(e) = remembered.keep(Session::of(&app))
    {
        log::warn!("the session is not kept: {e}");
    }
    app.fatal
        .map_or(Ok(()), |reason| Err(Error::Prompt(reason)))
}

/// Options for taking over the terminal.
struct TerminalSetup {
    asks_ground: bool,
    takes_mouse: bool,
    ears: Ears,
}

/// Reads a training on its own thread, which ends with the program.
fn follow(reader: HistoryReader, sender: Sender<Msg>) {
    thread::spawn(move || {
        let mut told = Instant::now();
        let mut sink = |updates: Vec<Update>| {
            // Without news, send one empty update a second to refresh the age shown.
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

/// Draws and waits in turn: processes all queued messages before the next frame.
fn show(
    app: &mut App,
    hands: &mut EffectRunner,
    receiver: &Receiver<Msg>,
    taking: TerminalSetup,
) -> io::Result<()> {
    let guard = Guard::take(taking.takes_mouse, taking.asks_ground)?;
    if taking.asks_ground || hands.graphics == Graphics::Auto {
        let term = std::env::var("TERM").unwrap_or_default();
        hands.question = Question::ask(&term)?;
    }
    // The size may have changed before the listener started.
    app.size = size();
    // Use the bounded size: a terminal may report any.
    let viewport = Viewport::Fixed(area_of(app.size));
    let mut terminal = Terminal::with_options(
        CrosstermBackend::new(stdout()),
        TerminalOptions { viewport },
    )?;
    // Most terminals tell their background at once, and a frame in the wrong colours would be visible.
    wait_for_answer(app, hands, receiver, |hands| {
        hands.question.as_ref()?.left_before_frame()
    });
    let mut pictures = Pictures::of(hands.graphics, hands.has_sixel);
    while !app.is_over {
        // Resize even if the size is unchanged: a terminal may lose cells when it is resized back and forth.
        if std::mem::take(&mut hands.is_resized) {
            terminal.resize(area_of(app.size))?;
            pictures.forget(hands.graphics, hands.has_sixel);
        }
        pictures.draw(&mut terminal, app)?;
        let Ok(msg) = receiver.recv() else { break };
        take_in(app, hands, msg);
        // A long log arrives in many parts: draw between them.
        let begun = Instant::now();
        while begun.elapsed() < FRAME
            && let Ok(msg) = receiver.try_recv()
        {
            take_in(app, hands, msg);
        }
        if let Some(text) = hands.outside.take()
            && !app.is_over
        {
            let edited = edit_outside(&text, &taking.ears);
            take_in(app, hands, Msg::EditedOutside(edited));
            hands.is_lost = true;
        }
        if let Some(command) = hands.lent.take()
            && !app.is_over
        {
            let ended = run_outside(&command.words, &taking.ears);
            take_in(app, hands, Msg::Commanded(command.nth, ended));
            hands.is_lost = true;
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
    // An answer that arrives after the end would be typed into the shell.
    wait_for_answer(app, hands, receiver, |hands| {
        hands.question.as_ref()?.left_before_end()
    });
    drop(guard);
    Ok(())
}

/// Processes messages until the terminal has answered or the time is up.
fn wait_for_answer(
    app: &mut App,
    hands: &mut EffectRunner,
    receiver: &Receiver<Msg>,
    left: impl Fn(&EffectRunner) -> Option<Duration>,
) {
    while let Some(left) = left(hands) {
        match receiver.recv_timeout(left) {
            Ok(msg) => take_in(app, hands, msg),
            Err(_) => return,
        }
    }
}

/// Largest screen drawn; a terminal that reports more would make us allocate gigabytes of cells.
const LARGEST: (u16, u16) = (1000, 1000);

/// The terminal's size, limited to what is drawn.
pub(super) fn size() -> (u16, u16) {
    bounded(crossterm::terminal::size().unwrap_or((80, 24)))
}

pub(super) fn bounded((width, height): (u16, u16)) -> (u16, u16) {
    (width.clamp(1, LARGEST.0), height.clamp(1, LARGEST.1))
}

fn area_of((width, height): (u16, u16)) -> Rect {
    Rect::new(0, 0, width, height)
}

/// Suspends the program and restores the terminal, until the shell continues it.
fn stop(app: &mut App) {
    #[cfg(unix)]
    if attnscope_system::signals::can_stop() {
        restore();
        attnscope_system::signals::stop();
        return;
    }
    app.notice = Some("there is no shell to go back to".to_owned());
}

fn take_in(app: &mut App, hands: &mut EffectRunner, msg: Msg) {
    let msg = match msg {
        Msg::Answer(answer) => {
            if answer == (Answer::Attributes { has_sixel: true }) {
                // The next frame shows its map as a picture.
                (hands.has_sixel, hands.is_resized) = (true, true);
            }
            let question = hands.question.as_mut();
            match question.and_then(|question| question.take(answer)) {
                Some(ground) => Msg::Ground(ground),
                None => return,
            }
        }
        msg => msg,
    };
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
            app.add_what_if(what_if);
        }
        if let Some(against) = hands.against.take() {
            app.must_compare_with(against);
        }
        // A story is about the checkpoint without what-ifs.
        if app.panel == Panel::Story {
            app.show_side(Shows::A);
        }
        effects.extend(app.update(Msg::Resize(app.size.0, app.size.1)));
    }
    for effect in effects {
        match effect {
            Effect::Export | Effect::ExportFigure => match Export::asked_for(app, &effect) {
                Ok(export) => hands.writer.write(export),
                Err(e) => take_in(app, hands, Msg::Exported(Err(e))),
            },
            Effect::Stop => hands.stops = true,
            Effect::EditOutside(text) => hands.outside = Some(text),
            Effect::Command(command) if command.has_terminal => hands.lent = Some(command),
            Effect::Command(command) => begin_in_background(command, hands.sender.clone()),
            Effect::Copy(text) => {
                if let Err(e) = copy(&text) {
                    app.written = None;
                    app.notice = Some(format!("the terminal cannot be written to ({e})"));
                }
            }
            Effect::Remember(prompt) => {
                let kept = hands.remembered.as_ref().map(|to| to.add(&prompt));
                // A full disk must not end the session.
                if let Some(Err(e)) = kept {
                    log::warn!("the prompt is not kept: {e}");
                }
            }
            effect => effect.ask(&hands.worker),
        }
    }
}

/// Copies a text to the terminal's clipboard.
fn copy(text: &str) -> io::Result<()> {
    let is_in_tmux = std::env::var_os("TMUX").is_some_and(|value| !value.is_empty());
    let mut out = stdout();
    out.write_all(copying::sequence(text, is_in_tmux).as_bytes())?;
    out.flush()
}

/// Panics on request, for the test that the terminal is restored. No released build contains this.
#[cfg(debug_assertions)]
fn panic_if_asked(msg: &Msg) {
    let is_asked = || std::env::var_os("ATTNSCOPE_TEST_PANIC").is_some();
    if matches!(msg, Msg::Key(key) if key.code == KeyCode::F(12)) && is_asked() {
        panic!("asked to panic");
    }
}

//! Every key, once: dispatch, footer, help and docs all read this table.

use attnscope_run::{Ability, HeadMap, can_write};
use crossterm::event::{KeyCode, KeyModifiers};

use super::app::App;
use super::comparing::{no_distance, no_first};
use super::history_keys::needs_training;
use super::panel::Panel;

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Stop,
    Back,
    Help,
    Find,
    Palette,
    PickStatistic,
    Edit,
    StopRun,
    ReadAgain,
    Export,
    ExportFigure,
    WhatIf,
    ClearSecond,
    EditSecond,
    ToggleDistance,
    GoToFirst,
    NextSide,
    Go(Panel),
    NextPanel,
    PreviousPanel,
    OpenHead,
    NextGrid,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    First,
    Last,
    Write,
    NextHead,
    PreviousHead,
    NextLayer,
    PreviousLayer,
    NextStatistic,
    PreviousStatistic,
    NextMap,
    ToggleLog,
    ToggleFirstKey,
    ZoomIn,
    ZoomOut,
    ZoomFit,
    ToggleReceived,
    TensorStats,
    ScrollKnobsDown,
    ScrollKnobsUp,
    OpenFinding,
    ToggleLayerSweep,
    OpenPage,
    Probe,
    NextType,
    FirstKey,
    LastKey,
    PageLeft,
    PageRight,
    OpenStep,
    MarkStep,
    NextOnset,
    PreviousOnset,
    ReadStepAgain,
    NextMeasure,
    DropHead,
    Copy,
    Bookmark,
    Bookmarks,
}

/// One row of the table.
pub struct Binding {
    pub chords: &'static [(KeyCode, KeyModifiers)],
    /// How the keys are written.
    pub shown: &'static str,
    pub action: Action,
    /// A word or two for the footer; empty keeps it out of the footer.
    pub label: &'static str,
    pub help: &'static str,
    pub group: Group,
    /// Where it means this; empty for everywhere.
    pub panels: &'static [Panel],
    /// Why it does nothing now.
    pub disabled: fn(&App) -> Option<&'static str>,
}

impl Binding {
    /// Whether it means something in a panel.
    pub fn is_in(&self, panel: Panel) -> bool {
        self.panels.is_empty() || self.panels.contains(&panel)
    }
}

/// Headings of help and docs, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Everywhere,
    Moving,
    Overview,
    Head,
    Tokens,
    Model,
    Checks,
    Compare,
    History,
    Sweep,
    Effect,
}

impl Group {
    pub const ALL: [Self; 11] = [
        Self::Everywhere,
        Self::Moving,
        Self::Overview,
        Self::Head,
        Self::Tokens,
        Self::Model,
        Self::Checks,
        Self::Compare,
        Self::History,
        Self::Sweep,
        Self::Effect,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Everywhere => "Everywhere",
            Self::Moving => "Moving",
            Self::Overview => "Overview and Scores",
            Self::Head => "Head",
            Self::Tokens => "Tokens",
            Self::Model => "Model",
            Self::Checks => "Checks",
            Self::Compare => "Compare",
            Self::History => "History",
            Self::Sweep => "Sweep",
            Self::Effect => "Effect",
        }
    }
}

const NONE: KeyModifiers = KeyModifiers::NONE;

const fn char(c: char) -> (KeyCode, KeyModifiers) {
    (KeyCode::Char(c), NONE)
}

const fn key(code: KeyCode) -> (KeyCode, KeyModifiers) {
    (code, NONE)
}

fn always(_: &App) -> Option<&'static str> {
    None
}

fn needs_run(app: &App) -> Option<&'static str> {
    if app.runs.a.is_some() {
        None
    } else {
        Some("nothing has run yet")
    }
}

fn needs_running(app: &App) -> Option<&'static str> {
    // While the checkpoint opens there is nothing to stop at: a prompt can be given up, an opening only quit.
    let is_preparing = app.preparing.is_some() && app.opened.is_some();
    let run = app.scene().run();
    let is_running = run.is_some_and(super::run::Run::is_running);
    let is_probing = run.is_some_and(|run| run.probing.is_some());
    let is_comparing = app.scene().compares_now().is_some() || app.scene().awaits_effects();
    if is_preparing || is_running || is_probing || is_comparing {
        None
    } else {
        Some("nothing is running")
    }
}

fn needs_probing(app: &App) -> Option<&'static str> {
    match app.scene().run() {
        None => Some("nothing has run yet"),
        Some(run) if run.judgement.is_none() => Some("the run is not over"),
        Some(run) if run.probing.is_some() => Some("the model is being asked: c stops"),
        Some(run) if run.is_probed => Some("the model was asked already"),
        Some(_) => None,
    }
}

fn needs_pattern(app: &App) -> Option<&'static str> {
    if app.scene().head_map() != HeadMap::Pattern {
        Some("only the pattern has a first key to leave out: press s")
    } else {
        None
    }
}

fn needs_model(app: &App) -> Option<&'static str> {
    if app.opened.is_some() {
        None
    } else {
        Some(not_open(app))
    }
}

/// Why nothing is open.
fn not_open(app: &App) -> &'static str {
    if app.training.is_some() && app.preparing.is_none() {
        "no step is open: choose one in 8 History and press Enter"
    } else {
        "the checkpoint is still being opened"
    }
}

pub fn needs_room(app: &App) -> Option<&'static str> {
    if super::areas::has_room(app.size) {
        None
    } else {
        Some("the terminal is too small to show anything")
    }
}

/// Why what is open cannot do something, or that nothing is open.
fn needs(app: &App, ability: Ability) -> Option<&'static str> {
    match &app.opened {
        None => Some(not_open(app)),
        Some(subject) => subject.lacks(ability),
    }
}

fn needs_what_if(app: &App) -> Option<&'static str> {
    needs(app, Ability::WhatIf).or_else(|| needs_run(app))
}

fn needs_text(app: &App) -> Option<&'static str> {
    needs(app, Ability::AnotherText)
}

fn needs_another_prompt(app: &App) -> Option<&'static str> {
    let is_model = app
        .opened
        .as_ref()
        .is_none_or(|subject| subject.model().is_some());
    let lacks = needs_text(app).or_else(|| needs_run(app));
    lacks.or_else(|| (!is_model).then_some("an alignment has one pair of texts"))
}

fn needs_writer(app: &App) -> Option<&'static str> {
    let subject = match &app.opened {
        None => return Some(not_open(app)),
        Some(subject) => subject,
    };
    match subject.model().map(|model| can_write(&model.spec)) {
        None => Some("there is no model that could write"),
        Some(Err(_)) => Some("this model predicts no next token: it cannot write"),
        Some(Ok(())) => needs_run(app),
    }
}

fn needs_files(app: &App) -> Option<&'static str> {
    needs(app, Ability::ReadAgain)
}

fn needs_second(app: &App) -> Option<&'static str> {
    match &app.runs.b {
        Some(_) => None,
        None => Some("nothing is supposed or compared: press w or E"),
    }
}

fn needs_story(app: &App) -> Option<&'static str> {
    match &app.story {
        Some(_) => None,
        None => {
            Some("there is no story here: attnscope demo collapse, healed or degenerate opens one")
        }
    }
}

fn needs_bookmarks(app: &App) -> Option<&'static str> {
    if app.bookmarks.is_empty() {
        Some("there is no bookmark yet: b sets one")
    } else {
        None
    }
}

fn needs_grids(app: &App) -> Option<&'static str> {
    if app.scene().grids().len() > 1 {
        None
    } else {
        Some("this model has one stack")
    }
}

macro_rules! binding {
    ($chords:expr, $shown:literal, $action:expr, $label:literal, $help:literal, $group:ident, $panels:expr, $disabled:ident) => {
        Binding {
            chords: $chords,
            shown: $shown,
            action: $action,
            label: $label,
            help: $help,
            group: Group::$group,
            panels: $panels,
            disabled: $disabled,
        }
    };
}

use Panel::{
    Checks, Compare, Effect, Head, History, Model, Overview, Rows, Scores, Story, Sweep, Tokens,
};

/// Every key. The first row that matches wins; within a panel no chord stands twice.
#[rustfmt::skip]
pub static BINDINGS: &[Binding] = &[
    binding!(&[key(KeyCode::Enter)], "Enter", Action::OpenHead, "open head", "open the selected head", Overview, &[Overview, Scores, Tokens, Compare, Rows, Effect], needs_run),
    binding!(&[char('m')], "m", Action::PickStatistic, "statistic", "choose a statistic from a list that says what each means", Overview, &[Overview, Scores, Compare, History], always),
    binding!(&[char('n')], "n", Action::NextStatistic, "", "colour the grid by the next statistic", Overview, &[Overview, Scores, Compare, History], always),
    binding!(&[char('M')], "M", Action::PreviousStatistic, "", "colour the grid by the previous statistic", Overview, &[Overview, Scores, Compare, History], always),
    binding!(&[char('t')], "t", Action::NextType, "type", "show heads of the next type that there is: previous token, induction, …", Overview, &[Overview], needs_run),
    binding!(&[char('s')], "s", Action::NextMap, "map", "show the next map: pattern, scores, contribution", Head, &[Head, Compare], always),
    binding!(&[char('L')], "L", Action::ToggleLog, "log", "switch between linear and logarithmic colour", Head, &[Head, Compare], always),
    binding!(&[char('z')], "z", Action::ToggleFirstKey, "hide first key", "leave the first key out and renormalise", Head, &[Head], needs_pattern),
    binding!(&[char('+'), char('=')], "+", Action::ZoomIn, "zoom", "zoom in", Head, &[Head], always),
    binding!(&[char('-')], "-", Action::ZoomOut, "", "zoom out", Head, &[Head], always),
    binding!(&[key(KeyCode::Home)], "Home", Action::FirstKey, "", "to the first key; g to the first query", Head, &[Head], always),
    binding!(&[key(KeyCode::End)], "End", Action::LastKey, "", "to the last key; Ctrl-End to the last query", Head, &[Head], always),
    binding!(&[char('<')], "<", Action::PageLeft, "", "ten keys to the left; PgUp and PgDn move ten queries", Head, &[Head], always),
    binding!(&[char('>')], ">", Action::PageRight, "", "ten keys to the right", Head, &[Head], always),
    binding!(&[char('0')], "0", Action::ZoomFit, "", "fit the map to the panel", Head, &[Head], always),
    binding!(&[char('r')], "r", Action::ToggleReceived, "gives/receives", "shade by what the query gives or the key receives", Tokens, &[Tokens], always),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::TensorStats, "figures", "compute min, max, mean and NaN count of the tensor", Model, &[Model], needs_model),
    binding!(&[char('J')], "J", Action::ScrollKnobsDown, "knobs", "scroll the knobs down", Model, &[Model], always),
    binding!(&[char('K')], "K", Action::ScrollKnobsUp, "", "scroll the knobs up", Model, &[Model], always),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::OpenFinding, "go there", "open the head of the finding, with its query and key", Checks, &[Checks], needs_run),
    binding!(&[char('i')], "i", Action::OpenPage, "explain", "what the check does, why it matters, and its false alarms", Checks, &[Checks], needs_run),
    binding!(&[char('p')], "p", Action::Probe, "probe", "ask the model on changed prompts, and look at its weights: leaks, and how it was trained", Checks, &[Checks], needs_probing),
    binding!(&[char('d')], "d", Action::ToggleDistance, "distance", "colour heads by the distance of their patterns, or by the statistic", Compare, &[Compare], no_distance),
    binding!(&[char('f')], "f", Action::GoToFirst, "first", "select the head, query and key at which A and B differ first", Compare, &[Compare], no_first),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::OpenStep, "open step", "open the selected step as A: all panels show it", History, &[History], needs_training),
    binding!(&[char(' ')], "Space", Action::MarkStep, "compare", "mark the selected step as B, to compare A with it; again takes the mark back", History, &[History], needs_training),
    binding!(&[char('f')], "f", Action::NextOnset, "finding", "to the step and head at which the next finding begins, or to the next trend", History, &[History], needs_training),
    binding!(&[char('F')], "F", Action::PreviousOnset, "", "to the finding before", History, &[History], needs_training),
    binding!(&[char('r')], "r", Action::ReadStepAgain, "", "read the files of the selected step again", History, &[History], needs_training),
    binding!(&[char('a')], "a", Action::ToggleLayerSweep, "whole layer", "sweep all heads of the layer too", Sweep, &[Panel::Sweep], needs_run),
    binding!(&[char('n'), char('m')], "n", Action::NextMeasure, "measure", "the next measure: attribution, ablation, contribution, copying", Effect, &[Effect], always),
    binding!(&[char(' ')], "Space", Action::DropHead, "drop", "suppose that the selected head writes nothing; W takes it back", Effect, &[Effect], needs_what_if),
    binding!(&[key(KeyCode::Up), char('k')], "↑ k", Action::Up, "", "one up", Moving, &[], always),
    binding!(&[key(KeyCode::Down), char('j')], "↓ j", Action::Down, "", "one down", Moving, &[], always),
    binding!(&[key(KeyCode::Left), char('h')], "← h", Action::Left, "", "one to the left", Moving, &[], always),
    binding!(&[key(KeyCode::Right), char('l')], "→ l", Action::Right, "", "one to the right", Moving, &[], always),
    binding!(&[key(KeyCode::PageUp)], "PgUp", Action::PageUp, "", "ten up", Moving, &[], always),
    binding!(&[key(KeyCode::PageDown)], "PgDn", Action::PageDown, "", "ten down", Moving, &[], always),
    binding!(&[char('g')], "g", Action::First, "", "to the first", Moving, &[], always),
    binding!(&[char('G')], "G", Action::Last, "", "to the last; elsewhere G lets the model write", History, &[History], needs_training),
    binding!(&[char('G')], "G", Action::Write, "", "let the model write behind the text; each token can be walked back to", Everywhere, &[Overview, Head, Scores, Tokens, Model, Checks, Compare, Rows, Effect, Panel::Sweep, Story], needs_writer),
    binding!(&[(KeyCode::End, KeyModifiers::CONTROL)], "Ctrl-End", Action::Last, "", "to the last, in Head too", Moving, &[], always),
    binding!(&[key(KeyCode::Home)], "Home", Action::First, "", "to the first; in Head to the first key", Moving, &[Overview, Scores, Tokens, Model, Checks, Compare, History, Rows, Effect, Panel::Sweep, Story], always),
    binding!(&[key(KeyCode::End)], "End", Action::Last, "", "to the last; in Head to the last key", Moving, &[Overview, Scores, Tokens, Model, Checks, Compare, History, Rows, Effect, Panel::Sweep, Story], always),
    binding!(&[char('o')], "o", Action::NextGrid, "other stack", "encoder, decoder, cross-attention in turn", Moving, &[], needs_grids),
    binding!(&[char(']')], "]", Action::NextHead, "", "next head, through the layers", Moving, &[], always),
    binding!(&[char('[')], "[", Action::PreviousHead, "", "previous head, through the layers", Moving, &[], always),
    binding!(&[char('}')], "}", Action::NextLayer, "", "same head, next layer", Moving, &[], always),
    binding!(&[char('{')], "{", Action::PreviousLayer, "", "same head, previous layer", Moving, &[], always),
    binding!(&[char('w')], "w", Action::WhatIf, "what if", "suppose another attention: scale, axis, mask, norm, a head dropped", Everywhere, &[], needs_what_if),
    binding!(&[char('v')], "v", Action::NextSide, "A/B", "show B, the difference, and A in turn", Everywhere, &[], needs_second),
    binding!(&[char('W')], "W", Action::ClearSecond, "A alone", "back to A alone: the checkpoint as it is", Everywhere, &[], needs_second),
    binding!(&[char('e')], "e", Action::Edit, "edit text", "edit the text and run it again", Everywhere, &[], needs_text),
    binding!(&[char('E')], "E", Action::EditSecond, "", "keep the text as A, and edit a second one as B", Everywhere, &[], needs_another_prompt),
    binding!(&[char('x'), (KeyCode::Char('s'), KeyModifiers::CONTROL)], "x", Action::Export, "export", "write the screen as SVG, its data as CSV; Ctrl-S in text fields too", Everywhere, &[], needs_room),
    binding!(&[char('X')], "X", Action::ExportFigure, "", "write the data alone as a figure for paper, SVG and CSV", Everywhere, &[], needs_room),
    binding!(&[char('y')], "y", Action::Copy, "copy", "copy the number, the row, the place or the command line of the view", Everywhere, &[], needs_room),
    binding!(&[char('b')], "b", Action::Bookmark, "", "set a bookmark here, or take it back", Everywhere, &[], needs_run),
    binding!(&[char('\'')], "'", Action::Bookmarks, "", "jump to a bookmark", Everywhere, &[], needs_bookmarks),
    binding!(&[char('/')], "/", Action::Find, "find", "find a head (L3H7), a token or a tensor", Everywhere, &[], needs_model),
    binding!(&[char(':')], ":", Action::Palette, "palette", "everything there is in one list: panels, statistics, findings, heads, prompts, actions", Everywhere, &[], always),
    binding!(&[char('1')], "1", Action::Go(Overview), "", "layers × heads by one statistic", Everywhere, &[], always),
    binding!(&[char('2')], "2", Action::Go(Head), "", "one head at full resolution", Everywhere, &[], always),
    binding!(&[char('3')], "3", Action::Go(Scores), "", "statistics and distributions of one head", Everywhere, &[], always),
    binding!(&[char('4')], "4", Action::Go(Tokens), "", "the text, shaded, and the model's predictions", Everywhere, &[], always),
    binding!(&[char('5')], "5", Action::Go(Model), "", "how the checkpoint was read", Everywhere, &[], always),
    binding!(&[char('6')], "6", Action::Go(Checks), "", "findings: leaks, collapse and the like", Everywhere, &[], always),
    binding!(&[char('7')], "7", Action::Go(Compare), "", "A, B and the difference: what is supposed, another checkpoint, a trace or prompt", Everywhere, &[], always),
    binding!(&[char('8'), char('N')], "8 N", Action::Go(Rows), "", "every row of a head in numbers, and why it collapsed; N beside a training", Everywhere, &[], always),
    binding!(&[char('H')], "H", Action::Go(History), "", "steps × heads of a training; also 8 where one is open", Everywhere, &[], needs_training),
    binding!(&[char('9')], "9", Action::Go(Effect), "", "what heads do: attribution, ablation, contribution, copying, and the lens", Everywhere, &[], always),
    binding!(&[char('T')], "T", Action::Go(Sweep), "", "the softmax of a head's scores, larger and smaller", Everywhere, &[], always),
    binding!(&[char('S')], "S", Action::Go(Story), "", "the story of a demo, page by page", Everywhere, &[], needs_story),
    binding!(&[key(KeyCode::Tab)], "Tab", Action::NextPanel, "", "next panel", Everywhere, &[], always),
    binding!(&[key(KeyCode::BackTab)], "Shift-Tab", Action::PreviousPanel, "", "previous panel", Everywhere, &[], always),
    binding!(&[key(KeyCode::Esc)], "Esc", Action::Back, "", "go back", Everywhere, &[], always),
    binding!(&[char('c')], "c", Action::StopRun, "", "stop the run that is going", Everywhere, &[], needs_running),
    binding!(&[char('R')], "R", Action::ReadAgain, "", "read the files and run the text again; r too when files changed", Everywhere, &[], needs_files),
    binding!(&[char('?')], "?", Action::Help, "help", "this list", Everywhere, &[], always),
    binding!(&[char('q'), (KeyCode::Char('c'), KeyModifiers::CONTROL)], "q", Action::Quit, "quit", "quit at once; Ctrl-C does so everywhere", Everywhere, &[], always),
    binding!(&[(KeyCode::Char('z'), KeyModifiers::CONTROL)], "Ctrl-Z", Action::Stop, "", "back to the shell; fg there returns", Everywhere, &[], always),
];

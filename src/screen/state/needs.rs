//! Why an action is not possible now: checks its requirement against the state.

use attnscope_run::{Ability, HeadMap, can_write};

use super::app::App;
use super::keys::Need;
use super::panel::Panel;
use super::scene::compared::has_hooks;
use crate::areas::has_room;

/// Why a recording has no effects.
pub const NO_EFFECT: &str = "there is no model to ask: effects need a checkpoint that can be run";

impl App {
    /// Why a requirement is not met; `None` if it is.
    pub fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Nothing => None,
            Need::Subject => needs_model(self),
            Need::Run => needs_run(self),
            Need::Work => needs_running(self),
            Need::Unasked => needs_probing(self),
            Need::Pattern => needs_pattern(self),
            Need::Grids => needs_grids(self),
            Need::AnotherText => needs_text(self),
            Need::AnotherPrompt => needs_another_prompt(self),
            Need::WhatIf => needs_what_if(self),
            Need::Writer => needs_writer(self),
            Need::Files => needs(self, Ability::ReadAgain),
            Need::Second => needs_second(self),
            Need::Runs => needs_runs(self),
            Need::Distance => no_distance(self),
            Need::Difference => no_first(self),
            Need::Training => needs_training(self),
            Need::Story => needs_story(self),
            Need::Bookmarks => needs_bookmarks(self),
            Need::Searchable if self.list_here().is_some() => None,
            Need::Searchable => needs_model(self),
            Need::Match => needs_match(self),
            Need::Shown => needs_shown(self),
            Need::Room => needs_room(self),
        }
    }
}

/// Why the open panel shows nothing that a key of its own could change.
fn needs_shown(app: &App) -> Option<&'static str> {
    let scene = app.scene();
    let is_model = || {
        let subject = scene.subject();
        subject.is_none_or(|subject| subject.model().is_some())
    };
    match app.panel {
        Panel::Compare if scene.shows_marked() => None,
        Panel::Compare => needs_second(app),
        Panel::Effect if !is_model() => Some(NO_EFFECT),
        Panel::Sweep => needs_run(app).or_else(|| scene.no_sweep()),
        Panel::Prompts if scene.over_prompts().is_none() => Some("no prompt has run here yet"),
        Panel::Overview if scene.head_types().is_empty() => {
            needs_run(app).or(Some("no head of this run has a type"))
        }
        Panel::Model => needs_model(app).or_else(|| {
            let n_tensors = scene.subject().map_or(0, |subject| subject.tensors().len());
            (n_tensors == 0).then_some("no tensors are listed here")
        }),
        _ => None,
    }
}

fn needs_run(app: &App) -> Option<&'static str> {
    if app.runs.a.is_some() {
        None
    } else {
        Some("nothing has run yet")
    }
}

fn needs_running(app: &App) -> Option<&'static str> {
    // While the checkpoint opens, there is nothing to stop: preparing a prompt can be cancelled, opening can only be quit.
    let is_preparing = app.preparing.is_some() && app.opened.is_some();
    let run = app.scene().run();
    let is_running = run.is_some_and(|run| run.is_running() || run.is_checking());
    let is_probing = run.is_some_and(|run| run.probing.is_some());
    let is_comparing = app.scene().compares_now().is_some() || app.scene().awaits_effects();
    let is_comparing = is_comparing || app.prompts_view.progress().is_some();
    if is_preparing || is_running || is_probing || is_comparing {
        None
    } else {
        Some("nothing is running")
    }
}

fn needs_probing(app: &App) -> Option<&'static str> {
    match app.scene().run() {
        None => Some("nothing has run yet"),
        Some(run) if run.is_checking() => Some("the checks are running"),
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
        "no step is open: choose one in H History and press Enter"
    } else {
        "the checkpoint is still being opened"
    }
}

fn needs_room(app: &App) -> Option<&'static str> {
    if has_room(app.size) {
        None
    } else {
        Some("the terminal is too small to show anything")
    }
}

/// Why the open subject cannot do something, or that nothing is open.
fn needs(app: &App, ability: Ability) -> Option<&'static str> {
    match &app.opened {
        None => Some(not_open(app)),
        Some(subject) => subject.why_not(ability),
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

fn needs_second(app: &App) -> Option<&'static str> {
    match &app.runs.b {
        Some(_) => None,
        None => Some("no second run yet: press w or E"),
    }
}

fn needs_runs(app: &App) -> Option<&'static str> {
    let has_several = app.runs.seen.len() > 1;
    (!has_several).then_some("there is one run so far: e, w or E makes another")
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

fn needs_match(app: &App) -> Option<&'static str> {
    let has_matches = app.filter_here().is_some() || app.search_here().is_some();
    (!has_matches).then_some("nothing is filtered here: / begins that")
}

fn needs_grids(app: &App) -> Option<&'static str> {
    if app.scene().grids().len() > 1 {
        None
    } else {
        Some("this model has one stack")
    }
}

/// Why heads cannot be coloured by the distance of their patterns.
fn no_distance(app: &App) -> Option<&'static str> {
    let Some(both) = app.runs.both() else {
        return Some("there is nothing to compare with: w, E or --against");
    };
    if !both.into_iter().all(has_hooks) {
        return Some("the distance of patterns is not computed for alignments");
    }
    (both[0].prompt.tokens != both[1].prompt.tokens)
        .then_some("patterns of two texts have no distance: heads compare by statistics")
}

/// Why there is no first difference to go to.
fn no_first(app: &App) -> Option<&'static str> {
    match app.scene().comparison() {
        None => Some("nothing is compared hook by hook"),
        Some(comparison) if comparison.first().is_none() => {
            Some("no hook differs beyond its tolerance")
        }
        Some(_) => None,
    }
}

fn needs_training(app: &App) -> Option<&'static str> {
    match &app.training {
        Some(_) => None,
        None => Some(
            "no training is open: attnscope DIR with checkpoints in it, or a monitor log (run.jsonl)",
        ),
    }
}

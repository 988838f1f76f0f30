//! One frame without a terminal: runs the model as the screen does, waits for everything the panel shows, and renders it.

use std::sync::{Arc, mpsc};

use attnscope_compute::error::{Error, Result};
use attnscope_report::drawing::Format;
use attnscope_run::WhatIf;
use attnscope_terminal::theme::Theme;
use attnscope_worker::{Against, Event, Sink, Worker};

use super::export::{Export, Paper};
use super::panels;
use super::state::app::App;
use super::state::msg::Msg;
use super::state::panel::Panel;
use super::state::run::Run;
use super::state::shown::{Shown, within};
use super::state::story_view::StoryView;
use super::state::views::Axis;

/// What to run, and what to show of it.
pub struct Plot {
    /// Name of the checkpoint until it is open.
    pub name: String,
    /// Starts the run.
    pub begin: Box<dyn FnOnce(Sink) -> Worker>,
    pub theme: Theme,
    /// Columns and rows.
    pub size: (u16, u16),
    pub shown: Shown,
    pub what_ifs: Vec<WhatIf>,
    /// What the run is compared with, instead of what-ifs.
    pub against: Option<Against>,
    /// Leave cells of the CSV file as they are, even those that a spreadsheet would read as formulas.
    pub is_raw_csv: bool,
    /// The story of a demo and its open page.
    pub story: Option<StoryView>,
    /// Draw only the data, as a figure for paper, instead of the screen.
    pub figure: Option<(Paper, Format)>,
}

impl Shown {
    /// Opens the panel.
    pub(super) fn begin(&self, app: &mut App) {
        (app.panel, app.statistic_idx) = (self.panel, self.statistic_idx);
        (app.head_view, app.tokens_view.shows_received) = (self.head_view, self.shows_received);
        app.overview_view.shows_numbers = self.shows_numbers;
    }

    /// Selects the place, once the text is tokenized.
    pub(super) fn select(&self, app: &mut App) -> Result<()> {
        let Some(subject) = app.opened.clone() else {
            return Ok(());
        };
        app.select_grid(self.grid_in(&subject)?);
        let n_along = |axis| app.scene().n_along(axis);
        let query_idx = within(("query", "queries"), self.query_idx, n_along(Axis::Query))?;
        let key_idx = within(("key", "keys"), self.key_idx, n_along(Axis::Key))?;
        let at = &mut app.selection;
        at.layer_idx = self.layer_idx.unwrap_or(at.layer_idx);
        at.head_idx = self.head_idx.unwrap_or(at.head_idx);
        at.query_idx = query_idx.unwrap_or(at.query_idx);
        at.key_idx = key_idx.unwrap_or(at.key_idx);
        app.marks.toggle_all(&self.marked_in(&subject)?);
        app.compare_view.shows_marked = !app.marks.is_empty();
        app.keep_crosshair_in_sight();
        Ok(())
    }
}

/// Runs the model, waits and draws; calls `told` with the completed share of the run.
///
/// # Errors
/// When something cannot be opened, run or shown, with the reason in one line.
pub fn plot(plot: Plot, told: &mut dyn FnMut(f32)) -> Result<Export> {
    let (sender, events) = mpsc::channel();
    let mut app = App::new(plot.theme, plot.size, plot.name);
    let shown = plot.shown;
    shown.begin(&mut app);
    app.shows_times = false;
    app.story = plot.story;
    let worker = (plot.begin)(Arc::new(move |event| drop(sender.send(event))));
    let mut what_ifs = plot.what_ifs;
    let mut against = plot.against;
    let is_compared = !what_ifs.is_empty() || against.is_some();
    while !is_whole(&app, &shown, is_compared) {
        let event = events.recv().map_err(|_| {
            Error::Prompt("the run ended without a word: --log FILE says more".to_owned())
        })?;
        let begins = matches!(event, Event::Started { .. });
        take_in(&mut app, &worker, &shown, event, told)?;
        if begins {
            what_ifs
                .drain(..)
                .for_each(|what_if| app.add_what_if(what_if));
            if let Some(against) = against.take() {
                app.must_compare_with(against);
            }
        }
    }
    if let Some(check) = shown.check {
        app.checks_view.line_idx = panels::checks_list::line_of(app.scene(), check).unwrap_or(0);
    }
    match plot.figure {
        Some((paper, format)) => Export::figure_of(&app, &paper, format, plot.is_raw_csv),
        None => Export::of(&app, plot.is_raw_csv),
    }
}

fn take_in(
    app: &mut App,
    worker: &Worker,
    shown: &Shown,
    event: Event,
    told: &mut dyn FnMut(f32),
) -> Result<()> {
    let mut effects = Vec::new();
    match event {
        Event::Refused(reason)
        | Event::OpenFailed(reason)
        | Event::Changed(reason)
        | Event::Broken {
            message: reason, ..
        }
        | Event::TensorFailed { reason, .. }
        | Event::Failed { reason, .. }
        | Event::Unjudged { reason, .. }
        | Event::QuestionFailed { reason, .. } => return Err(Error::Prompt(reason)),
        Event::Opened { .. } => {
            effects = app.update(Msg::Worker(event));
            if let Some(subject) = &app.opened {
                shown.grid_in(subject)?;
            }
            if shown.panel == Panel::Model {
                app.ask_for_tensor(&mut effects);
            }
        }
        Event::Started { .. } => {
            effects = app.update(Msg::Worker(event));
            shown.select(app)?;
        }
        Event::Judged { .. } => {
            effects = app.update(Msg::Worker(event));
            let is_probed = app.scene().run().is_some_and(|run| run.is_probed);
            if shown.is_probed && !is_probed {
                app.probe(&mut effects);
            }
        }
        Event::Work { share, .. } => told(share),
        event => effects = app.update(Msg::Worker(event)),
    }
    effects.into_iter().for_each(|effect| effect.ask(worker));
    Ok(())
}

/// Whether everything that the panel shows has arrived.
fn is_whole(app: &App, shown: &Shown, is_compared: bool) -> bool {
    if is_compared {
        let are_judged = |both: [&Run; 2]| both.iter().all(|run| run.judgement.is_some());
        let scene = app.scene();
        let shows_maps = app.panel.compares()
            || (scene.shows_difference() && matches!(app.panel, Panel::Overview | Panel::Head));
        let has_maps = !shows_maps || scene.both_details().is_some();
        let shows_hooks = app.panel.compares()
            || (scene.shows_difference() && matches!(app.panel, Panel::Tokens | Panel::Model));
        let awaits_comparison = shows_hooks && scene.awaits_comparison();
        if !app.scene().both_runs().is_some_and(are_judged) || !has_maps || awaits_comparison {
            return false;
        }
    }
    let Some(run) = app.scene().run().filter(|run| run.judgement.is_some()) else {
        return false;
    };
    let has_head = || {
        let view = panels::head_layout::view(app.scene(), app.areas().body);
        app.scene().shown_detail().is_some()
            && (!app.scene().shows_part()
                || app.scene().part_with(&view.queries, &view.keys).is_some())
    };
    // Every requested tensor statistic has arrived.
    let has_figures = || app.model_view.stats.values().all(Option::is_some);
    (!shown.is_probed || run.is_probed)
        && (app.panel != Panel::Sweep
            || app.scene().swept().is_some()
            || app.scene().no_sweep().is_some())
        && (app.panel != Panel::Effect
            || app.scene().effects().is_some() && !app.scene().awaits_effects())
        && (!app.panel.shows_head() || has_head())
        && (app.panel != Panel::Model || has_figures())
}

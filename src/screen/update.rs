//! Turns messages into state. Nothing here draws, waits or computes.

use attnscope_spec::Stack;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind};

use super::panels;
use super::state::app::{App, Overlay};
use super::state::chooser::{Chooser, Chose};
use super::state::copied::Copied;
use super::state::editor::Edited;
use super::state::find::{Found, Target};
use super::state::keys::{Action, Need};
use super::state::look::Look;
use super::state::msg::{Effect, Msg};
use super::state::panel::Panel;
use super::state::run::{Preparing, Run};
use super::state::scene::compared::n_differing;
use super::state::selection::step;
use super::state::statistics::n_statistics;
use super::state::supposed::Situation;
use super::state::views::Axis;
use super::state::written::Written;

/// Rows or columns per page.
pub(super) const PAGE: isize = 10;

impl App {
    /// Handles one message; returns the effects to carry out elsewhere.
    pub fn update(&mut self, msg: Msg) -> Vec<Effect> {
        let mut effects = Vec::new();
        match msg {
            Msg::Terminate => self.is_over = true,
            Msg::Stop => effects.push(Effect::Stop),
            // Handled by the terminal loop, which asked.
            Msg::Continued | Msg::Answer(_) => {}
            Msg::Resize(width, height) => self.size = (width, height),
            Msg::Ground(ground) => self.take_ground(ground),
            Msg::Key(key) if key.kind != KeyEventKind::Release => {
                let is_free = self.overlay.is_none();
                let action = self.meant_by(key).filter(|_| is_free);
                let before = (self.look(), self.situation());
                self.key(key, &mut effects);
                self.note(before, action);
            }
            Msg::Key(_) => {}
            Msg::Paste(text) => self.paste(&text),
            Msg::Mouse(mouse) => {
                let before = (self.look(), self.situation());
                let is_click = matches!(mouse.kind, MouseEventKind::Down(_));
                self.mouse(mouse, &mut effects);
                if is_click {
                    self.note(before, None);
                }
            }
            Msg::Worker(event) => {
                self.event(event);
                self.note_first();
                self.note_second();
                self.note_figures();
            }
            Msg::EditedOutside(text) => {
                if let Some(Overlay::Edit(editor)) = &mut self.overlay {
                    match text {
                        Ok(text) => editor.replace(&text),
                        Err(e) => editor.problem = Some(e.to_string()),
                    }
                }
            }
            Msg::Exported(Ok(Written { svg, .. })) => {
                // Both files have the same stem.
                self.written = Some(format!("wrote {} and .csv", svg.display()));
            }
            Msg::Commanded(nth, ended) => self.take_command(nth, ended),
            Msg::Story(told) => self.take_story(told),
            Msg::History(updates) => self.take_updates(updates),
            Msg::HistoryEnded(outcome) => self.end_history(outcome),
            Msg::Exported(Err(e)) => self.notice = Some(e.to_string()),
        }
        self.keep_selection_inside();
        self.refresh_filter();
        self.open_newest_step(&mut effects);
        self.ask_to_run_written(&mut effects);
        self.ask_second(&mut effects);
        self.ask_for_head(self.runs.shows, &mut effects);
        self.ask_both_heads(&mut effects);
        self.ask_for_comparison(&mut effects);
        self.ask_for_query_rows(&mut effects);
        self.ask_for_part(&mut effects);
        self.ask_for_sweep(&mut effects);
        self.ask_for_layer_sweep(&mut effects);
        self.ask_for_effects(&mut effects);
        self.ask_for_prompts(&mut effects);
        self.probe_by_itself(&mut effects);
        effects
    }

    /// Notes what a key or a click left behind, for going back and for undo.
    fn note(&mut self, (look, situation): (Look, Situation), action: Option<Action>) {
        self.note_jump(look, action);
        if !matches!(action, Some(Action::Undo | Action::Redo)) {
            self.note_change(situation);
        }
    }

    /// Moves the selected tokens inside the shown run, whose text may be shorter.
    fn keep_selection_inside(&mut self) {
        let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| self.scene().n_along(axis));
        let at = &mut self.selection;
        for (idx, n) in [(&mut at.query_idx, n_queries), (&mut at.key_idx, n_keys)] {
            if n > 0 {
                *idx = step(*idx, 0, n);
            }
        }
    }

    fn key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        // Ctrl-C and Ctrl-Z keep their usual meaning in every text field.
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => {
                    self.is_over = true;
                    return;
                }
                KeyCode::Char('z') => {
                    effects.push(Effect::Stop);
                    return;
                }
                _ => {}
            }
        }
        if self.notice.is_none() && self.written.is_none() {
            self.tips.pop_front();
        }
        (self.written, self.pointer) = (None, None);
        if self.exports(key) {
            self.notice = None;
            match self.lacks(Need::Room) {
                Some(reason) => self.notice = Some(reason.to_owned()),
                None => effects.push(Effect::Export),
            }
            return;
        }
        // Only the topmost overlay gets the key.
        match &mut self.overlay {
            Some(Overlay::Edit(editor)) => match editor.key(key) {
                Edited::Going => {}
                Edited::Dismissed => self.overlay = None,
                Edited::Outside(text) => effects.push(Effect::EditOutside(text)),
                Edited::Submitted(request) => {
                    let is_for_second = editor.is_for_second;
                    self.submitted(request, is_for_second, effects);
                }
                Edited::Search => self.search_texts(),
            },
            Some(Overlay::WhatIf(chooser)) => match chooser.key(key) {
                Chose::Going => {}
                Chose::Dismissed => self.overlay = None,
                Chose::WhatIf(what_if) => {
                    self.overlay = None;
                    self.add_what_if(*what_if);
                }
                Chose::Less(nth) => {
                    self.overlay = None;
                    self.remove_what_if(nth);
                }
                Chose::Switch(nth) => {
                    chooser.switch(nth);
                    self.switch_what_if(nth);
                }
            },
            Some(Overlay::Filter { .. }) => self.filter_key(key, effects),
            Some(Overlay::Find(find)) => match find.key(key) {
                Found::Going => {}
                Found::Dismissed => self.overlay = None,
                Found::Chosen(target) => {
                    self.search = find.search_from_here();
                    self.overlay = None;
                    self.choose(target, effects);
                }
                Found::Beside(_) => {}
            },
            Some(Overlay::Palette(find)) => {
                let title = find.title;
                match find.key(key) {
                    Found::Going => {}
                    Found::Dismissed => self.close_list(title, None, effects),
                    Found::Chosen(target) => self.close_list(title, Some(target), effects),
                    Found::Beside(Target::Seen(nth)) => {
                        self.overlay = None;
                        self.choose_run(nth, true, effects);
                    }
                    Found::Beside(_) => {}
                }
            }
            Some(Overlay::Help { .. }) => self.help_key(key),
            Some(Overlay::Page { scroll, .. }) => match key.code {
                KeyCode::Down | KeyCode::Char('j') => *scroll += 1,
                KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
                KeyCode::PageDown => *scroll += PAGE as usize,
                KeyCode::PageUp => *scroll = scroll.saturating_sub(PAGE as usize),
                KeyCode::Char('q') => self.is_over = true,
                _ => self.overlay = None,
            },
            Some(Overlay::Copy(offers)) => {
                let offers = std::mem::take(offers);
                self.overlay = None;
                let pressed = |copied: &&Copied| key.code == KeyCode::Char(copied.key);
                match offers.iter().find(pressed) {
                    Some(copied) => self.copy(copied, effects),
                    None if key.code == KeyCode::Enter => self.copy(&offers[0], effects),
                    None => {}
                }
            }
            Some(Overlay::Writing(_)) => self.writing_key(key, effects),
            None => {
                self.notice = None;
                if let Some(action) = self.meant_by(key) {
                    self.act_if_enabled(action, effects);
                }
            }
        }
    }

    /// Whether a key exports the screen: always, unless a text field reads its letter as text.
    fn exports(&self, key: KeyEvent) -> bool {
        let is_text = matches!(
            self.overlay,
            Some(
                Overlay::Edit(_)
                    | Overlay::Find(_)
                    | Overlay::Palette(_)
                    | Overlay::WhatIf(_)
                    | Overlay::Filter { .. }
                    | Overlay::Help { typed: Some(_), .. }
            )
        ) && !key.modifiers.contains(KeyModifiers::CONTROL);
        let binding = self.keys.binding_of(key, self.panel);
        !is_text && binding.is_some_and(|binding| binding.action == Action::Export)
    }

    pub(super) fn act(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if !action.marks_range() {
            self.marks.end_range();
        }
        match action {
            Action::Quit => self.is_over = true,
            Action::Stop => effects.push(Effect::Stop),
            Action::Back => self.back(),
            Action::Help => self.open_help(),
            Action::Copy => self.open_copying(),
            Action::Bookmark => self.toggle_bookmark(),
            Action::Bookmarks => self.open_bookmarks(),
            Action::Find => self.begin_to_find(),
            Action::NextMatch => self.go_to_match(1, effects),
            Action::PreviousMatch => self.go_to_match(-1, effects),
            Action::GoToStrongest => self.go_to_strongest(),
            Action::MarkHead => self.mark_head(),
            Action::MarkUp => self.extend_marks(0, -1),
            Action::MarkDown => self.extend_marks(0, 1),
            Action::MarkLeft => self.extend_marks(-1, 0),
            Action::MarkRight => self.extend_marks(1, 0),
            Action::MarkMatches => self.mark_matches(),
            Action::ClearMarks => self.clear_marks(),
            Action::DropMarked => self.drop_marked(),
            Action::CompareMarked => self.compare_marked(),
            Action::Runs => self.open_runs(),
            Action::NextRunA => self.next_run(false, effects),
            Action::NextRunB => self.next_run(true, effects),
            Action::Command(nth) => self.run_command(nth, effects),
            Action::FocusNext => self.next_pane(1),
            Action::FocusPrevious => self.next_pane(-1),
            Action::ZoomPane => self.zoom_pane(),
            Action::WidenPane => self.grow(4, 0),
            Action::NarrowPane => self.grow(-4, 0),
            Action::HeightenPane => self.grow(0, 2),
            Action::LowerPane => self.grow(0, -2),
            Action::ResetPanes => self.reset_panes(),
            Action::Backward => self.go_along(true),
            Action::Forward => self.go_along(false),
            Action::Undo => self.undo(true, effects),
            Action::Redo => self.undo(false, effects),
            Action::Palette => self.open_palette(),
            Action::PickStatistic => self.open_statistics(),
            Action::Edit => self.edit(false),
            Action::ReadAgain if self.is_live() => self.reload(),
            Action::ReadAgain => {
                self.preparing = Some(Preparing::Text);
                effects.push(Effect::ReadAgain);
            }
            Action::StopRun => effects.push(Effect::Cancel),
            Action::Write => self.begin_to_write(effects),
            Action::WhatIf => {
                let at = self.selection;
                let chooser = Chooser::new(at.stack, at.layer_idx, at.head_idx)
                    .with(self.runs.what_ifs.clone(), self.marks.places());
                self.overlay = Some(Overlay::WhatIf(chooser));
            }
            Action::ClearSecond => {
                let is_running = self.runs.second().map(Run::is_running);
                self.drop_second();
                self.switch_all_off();
                if is_running == Some(true) {
                    effects.push(Effect::Cancel);
                }
            }
            Action::ToggleDistance => {
                self.compare_view.is_by_distance = !self.compare_view.is_by_distance;
            }
            Action::GoToFirst => self.go_to_first(),
            Action::EditSecond => self.edit(true),
            Action::NextSide => self.next_side(),
            Action::Export => effects.push(Effect::Export),
            Action::ExportFigure => effects.push(Effect::ExportFigure),
            Action::Go(panel) => self.go(panel),
            Action::NextPanel => self.next_panel(1),
            Action::PreviousPanel => self.next_panel(-1),
            Action::NextGrid => self.next_grid(),
            Action::OpenHead => self.go(Panel::Head),
            Action::Up => self.step(0, -1),
            Action::Down => self.step(0, 1),
            Action::Left => self.step(-1, 0),
            Action::Right => self.step(1, 0),
            Action::PageUp => self.step(0, -PAGE),
            Action::PageDown => self.step(0, PAGE),
            Action::First if self.panel == Panel::History => self.step(isize::MIN / 2, 0),
            Action::Last if self.panel == Panel::History => self.step(isize::MAX / 2, 0),
            Action::First => self.step(0, isize::MIN / 2),
            Action::Last => self.step(0, isize::MAX / 2),
            Action::FirstKey => self.step(isize::MIN / 2, 0),
            Action::LastKey => self.step(isize::MAX / 2, 0),
            Action::PageLeft => self.step(-PAGE, 0),
            Action::PageRight => self.step(PAGE, 0),
            Action::OpenStep => self.open_step(effects),
            Action::MarkStep => self.mark_step(),
            Action::NextOnset => self.step_onset(1),
            Action::PreviousOnset => self.step_onset(-1),
            Action::ReadStepAgain => self.read_step_again(effects),
            Action::NextHead if self.panel == Panel::History => self.step(0, 1),
            Action::PreviousHead if self.panel == Panel::History => self.step(0, -1),
            Action::NextHead => self.next_head(1),
            Action::PreviousHead => self.next_head(-1),
            Action::NextLayer if self.panel == Panel::History => self.step_history_layer(1),
            Action::PreviousLayer if self.panel == Panel::History => self.step_history_layer(-1),
            Action::NextLayer => self.step_layer(1),
            Action::PreviousLayer => self.step_layer(-1),
            Action::NextStatistic => self.next_statistic(1),
            Action::PreviousStatistic => self.next_statistic(-1),
            Action::NextMap => self.head_view.map = self.scene().next_map(),
            Action::ToggleLog => self.head_view.is_log = !self.head_view.is_log,
            Action::ToggleFirstKey => {
                self.head_view.hides_first_key = !self.head_view.hides_first_key
            }
            Action::ToggleNumbers => self.toggle_numbers(),
            Action::ZoomIn if self.panel == Panel::Overview => self.zoom_into_heads(),
            Action::ZoomOut if self.panel == Panel::Overview => self.zoom_out_of_heads(),
            Action::ZoomIn => self.zoom(1),
            Action::ZoomOut => self.zoom(-1),
            Action::ZoomFit => (self.head_view.zoom, self.head_view.is_full) = (None, false),
            Action::ToggleReceived => {
                self.tokens_view.shows_received = !self.tokens_view.shows_received
            }
            Action::OpenFinding => self.open_finding(),
            Action::ToggleLayerSweep => self.sweep.wants_layer = !self.sweep.wants_layer,
            Action::OpenPage => {
                if let Some(check) = panels::checks_list::selected_check(self.scene()) {
                    self.overlay = Some(Overlay::Page { check, scroll: 0 });
                }
            }
            Action::Probe => self.probe(effects),
            Action::NextType => {
                self.next_type();
            }
            Action::TensorStats => self.ask_for_tensor(effects),
            Action::NextMeasure => self.next_measure(),
            Action::DropHead => self.drop_head(),
            Action::OpenExcited => self.open_excited(effects),
            Action::SwapAxes => self.swap_axes(),
            Action::RunPrompts => self.run_prompts(effects),
            Action::ScrollKnobsDown => self.model_view.knob_scroll += 1,
            Action::ScrollKnobsUp => {
                self.model_view.knob_scroll = self.model_view.knob_scroll.saturating_sub(1)
            }
        }
    }

    pub(super) fn go(&mut self, panel: Panel) {
        self.prompts_view.is_open |= panel == Panel::Prompts;
        if panel != self.panel {
            self.history.retain(|p| *p != panel);
            self.history.push(self.panel);
            self.panel = panel;
        }
    }

    /// Opens the next available panel, the first after the last.
    fn next_panel(&mut self, by: isize) {
        let panels: Vec<Panel> = self.panels().collect();
        let here = panels.iter().position(|panel| *panel == self.panel);
        let next = (here.unwrap_or(0) as isize + by).rem_euclid(panels.len() as isize);
        self.go(panels[next as usize]);
    }

    fn back(&mut self) {
        if self.end_filter() || self.end_zoom() {
            return;
        }
        if let Some(panel) = self.history.pop() {
            self.panel = panel;
        }
    }

    /// Moves the panel's selection: a head in grids, the crosshair on maps, a token in the text, a tensor in lists.
    pub(super) fn step(&mut self, across: isize, down: isize) {
        let down = if self.step_filtered(down) { 0 } else { down };
        if (across, down) == (0, 0) {
            return;
        }
        if let Some(head_idx) = self.head_in_next_row(down) {
            self.selection.head_idx = head_idx;
            return;
        }
        let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| self.scene().n_along(axis));
        match self.panel {
            Panel::Scores => {
                self.step_statistic(down);
                self.selection.head_idx =
                    step(self.selection.head_idx, across, self.scene().n_heads());
            }
            Panel::Compare if self.shows_marked() => self.step_marked(across.saturating_add(down)),
            Panel::Overview | Panel::Compare => {
                self.step_layer(down);
                self.selection.head_idx =
                    step(self.selection.head_idx, across, self.scene().n_heads());
            }
            Panel::Head => {
                self.selection.query_idx = step(self.selection.query_idx, down, n_queries);
                self.selection.key_idx = step(self.selection.key_idx, across, n_keys);
                self.keep_crosshair_in_sight();
            }
            Panel::Tokens => {
                let by = if across != 0 {
                    across
                } else {
                    self.tokens_down(down)
                };
                if self.tokens_view.shows_received {
                    self.selection.key_idx = step(self.selection.key_idx, by, n_keys);
                } else {
                    self.selection.query_idx = step(self.selection.query_idx, by, n_queries);
                }
            }
            Panel::Rows | Panel::Sweep => {
                self.selection.query_idx = step(self.selection.query_idx, down, n_queries);
                self.selection.head_idx =
                    step(self.selection.head_idx, across, self.scene().n_heads());
            }
            Panel::Effect => self.step_effects(across, down, n_queries),
            Panel::Prompts => self.step_prompts(across, down),
            Panel::Story => self.step_story(across, down),
            Panel::History => self.step_history(across, down),
            Panel::Checks => self.step_findings(across, down),
            Panel::Model => {
                let scene = self.scene();
                let subject = scene.subject().filter(|_| !scene.shows_difference());
                let n_tensors = subject.map_or_else(
                    || scene.comparison().map_or(0, n_differing),
                    |subject| subject.tensors().len(),
                );
                self.model_view.tensor_idx =
                    step(self.model_view.tensor_idx, down + across, n_tensors);
            }
        }
    }

    /// Number of tokens to the line above or below, as the text is wrapped on screen.
    fn tokens_down(&self, down: isize) -> isize {
        // In cross-attention the selection moves in a text that is not the wrapped one.
        if down.abs() > PAGE || self.selection.stack == Stack::Cross {
            return down;
        }
        panels::tokens::step_line(self.scene(), self.areas().body, down)
    }

    /// Selects another available statistic.
    fn step_statistic(&mut self, by: isize) {
        let scene = self.scene();
        let known: Vec<usize> = (0..n_statistics())
            .filter(|idx| scene.knows(*idx))
            .collect();
        let here = known.iter().position(|idx| *idx == self.statistic_idx);
        let next = step(here.unwrap_or(0), by, known.len());
        self.statistic_idx = known.get(next).copied().unwrap_or(self.statistic_idx);
    }

    fn next_statistic(&mut self, by: isize) {
        let n = n_statistics();
        for _ in 0..n {
            self.statistic_idx = self.statistic_idx.wrapping_add_signed(by + n as isize) % n;
            if self.scene().knows(self.statistic_idx) {
                return;
            }
        }
    }

    pub(super) fn keep_crosshair_in_sight(&mut self) {
        let body = self.areas().body;
        let (first_query, first_key) = panels::head_layout::window_start(self.scene(), body);
        (self.head_view.first_query, self.head_view.first_key) = (first_query, first_key);
    }
}

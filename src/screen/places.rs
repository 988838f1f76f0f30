//! Places to jump to: entries of the finder, their targets, and where findings are.

use attnscope_prompt::Request;
use attnscope_spec::{Place, Stack};

use super::panels;
use super::state::app::App;
use super::state::find::{Item, Target};
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::selection::{step, step_to};
use super::state::views::Axis;

impl App {
    /// Selects a grid of heads and keeps the rest of the selection inside it.
    pub(super) fn select_grid(&mut self, grid: Stack) {
        self.selection.stack = grid;
        self.step_layer(0);
        let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| self.scene().n_along(axis));
        self.selection.query_idx = step(self.selection.query_idx, 0, n_queries);
        self.selection.key_idx = step(self.selection.key_idx, 0, n_keys);
        self.keep_crosshair_in_sight();
    }

    pub(super) fn next_grid(&mut self) {
        let grids = self.scene().grids();
        let here = grids.iter().position(|grid| *grid == self.selection.stack);
        let next = here.map_or(0, |idx| (idx + 1) % grids.len());
        self.select_grid(grids[next]);
    }

    /// Selects the next head in reading order.
    pub(super) fn next_head(&mut self, by: isize) {
        let (grid, here) = (self.selection.stack, self.selection);
        let Some(subject) = self.scene().subject() else {
            return;
        };
        // Layers may have different numbers of heads.
        let heads = (0..subject.n_layers(grid)).flat_map(|layer_idx| {
            (0..subject.n_heads(grid, layer_idx)).map(move |head_idx| (layer_idx, head_idx))
        });
        let heads: Vec<(usize, usize)> = heads.collect();
        let place = heads.partition_point(|at| *at < (here.layer_idx, here.head_idx));
        if let Some(at) = heads.get(step(place, by, heads.len())) {
            (self.selection.layer_idx, self.selection.head_idx) = *at;
        }
    }

    /// Selects a layer above or below; skips layers without attention, which have no head to select.
    pub(super) fn step_layer(&mut self, by: isize) {
        let (here, n_layers) = (self.selection.layer_idx, self.scene().n_layers());
        self.selection.layer_idx = step_to(here, by, n_layers, |layer_idx| {
            self.selection.layer_idx = layer_idx;
            self.scene().n_heads() > 0
        });
        self.selection.head_idx = step(self.selection.head_idx, 0, self.scene().n_heads());
    }

    /// Selects the place of a finding and shows it; unfolds or folds findings that are alike.
    pub(super) fn open_finding(&mut self) {
        if self.toggle_fold() {
            return;
        }
        let lines = panels::checks_list::lines(self.scene());
        let found = lines.selected().and_then(|line| line.finding());
        let Some(place) = found.map(|(finding, _)| finding.place) else {
            self.notice = Some("this line has no place: i explains the check".to_owned());
            return;
        };
        let Some(layer_idx) = place.layer_idx else {
            self.notice = Some("this finding is about the whole model".to_owned());
            return;
        };
        self.select_grid(place.grid());
        self.selection.layer_idx = layer_idx;
        self.selection.head_idx = place.head_idx.unwrap_or(0);
        self.step_layer(0);
        let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| self.scene().n_along(axis));
        if let Some(query_idx) = place.query_idx {
            self.selection.query_idx = step(query_idx, 0, n_queries);
        }
        if let Some(key_idx) = place.key_idx {
            self.selection.key_idx = step(key_idx, 0, n_keys);
        }
        self.go(Panel::Head);
        self.keep_crosshair_in_sight();
    }

    /// Selects the key that the selected query gives most to.
    pub(super) fn go_to_strongest(&mut self) {
        let at = self.selection;
        let strongest = self.scene().layer().and_then(|layer| {
            let head = layer.heads.get(at.head_idx)?;
            Some(head.summary.rows.get(at.query_idx)?.argmax as usize)
        });
        let n_keys = self.scene().n_along(Axis::Key);
        match strongest.filter(|key_idx| *key_idx < n_keys) {
            Some(key_idx) => self.selection.key_idx = key_idx,
            None => self.notice = Some("this query has no strongest key yet".to_owned()),
        }
        self.keep_crosshair_in_sight();
    }

    pub(super) fn find_items(&self) -> Vec<Item> {
        let Some(subject) = self.scene().subject() else {
            return Vec::new();
        };
        let heads = self.scene().grids().into_iter().flat_map(|grid| {
            let layers = 0..subject.n_layers(grid);
            layers.flat_map(move |layer_idx| {
                let heads = 0..subject.n_heads(grid, layer_idx);
                heads.map(move |head_idx| {
                    let place = Place::layer(grid, layer_idx).head(head_idx);
                    let target = Target::Head {
                        grid,
                        layer_idx,
                        head_idx,
                    };
                    Item::new(place.to_string(), "head", target)
                })
            })
        });
        let tokens = (0..self.scene().n_along(Axis::Query)).map(|idx| {
            let label = format!("{} {idx}", self.scene().token(Axis::Query, idx));
            Item::new(label, "token", Target::Token(idx))
        });
        let tensors = subject
            .tensors()
            .iter()
            .enumerate()
            .map(|(idx, (name, _))| Item::new(name, "tensor", Target::Tensor(idx)));
        heads.chain(tokens).chain(tensors).collect()
    }

    pub(super) fn go_to(&mut self, target: Target, effects: &mut Vec<Effect>) {
        match target {
            Target::Panel(panel) => self.go(panel),
            Target::Statistic(idx) => {
                self.statistic_idx = idx;
                if !matches!(
                    self.panel,
                    Panel::Overview
                        | Panel::Scores
                        | Panel::Compare
                        | Panel::History
                        | Panel::Prompts
                ) {
                    self.go(Panel::Overview);
                }
            }
            Target::Layer { grid, layer_idx } => {
                self.select_grid(grid);
                self.selection.layer_idx = layer_idx;
                self.step_layer(0);
                if matches!(self.panel, Panel::Model) {
                    self.go(Panel::Overview);
                }
            }
            Target::Finding(line_idx) => {
                self.checks_view.line_idx = line_idx;
                self.go(Panel::Checks);
                self.reveal_finding();
            }
            Target::Action(action) => self.act(action, effects),
            Target::Colours(colours) => self.choose_colours(colours),
            Target::Bookmark(idx) => self.go_to_bookmark(idx),
            Target::Supposed(nth) => self.switch_what_if(nth),
            Target::Seen(nth) => self.choose_run(nth, false, effects),
            Target::Prompt(source) => {
                let request = Request {
                    source,
                    ..Request::text("")
                };
                self.run_text(request, effects);
            }
            Target::Against(against) => {
                self.compare_with(against);
                self.go(Panel::Compare);
            }
            Target::Head {
                grid,
                layer_idx,
                head_idx,
            } => {
                self.select_grid(grid);
                (self.selection.layer_idx, self.selection.head_idx) = (layer_idx, head_idx);
                if matches!(self.panel, Panel::Model) {
                    self.go(Panel::Overview);
                }
            }
            Target::Token(idx) => {
                self.selection.query_idx = idx;
                if !matches!(self.panel, Panel::Head | Panel::Tokens) {
                    self.go(Panel::Tokens);
                }
                self.keep_crosshair_in_sight();
            }
            Target::Step(record_idx) => self.go_to_step(record_idx),
            Target::Onset(nth) => {
                self.go(Panel::History);
                self.go_to_onset(nth);
            }
            Target::Tensor(idx) => {
                self.model_view.tensor_idx = idx;
                self.go(Panel::Model);
            }
        }
    }
}

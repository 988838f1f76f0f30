//! The palette: one list of every action and place, built from the tables that define them.

use std::path::Path;

use attnscope_checkpoint::Opening;
use attnscope_prompt::{Request, Source, is_sound};
use attnscope_run::Ability;
use attnscope_spec::Place;
use attnscope_worker::Against;

use super::panels::checks_list;
use super::state::app::{App, Overlay};
use super::state::find::{Find, Item, Target};
use super::state::head_facts::HeadFacts;
use super::state::keys::{Action, Binding, Group};
use super::state::panel::Panel;
use super::state::statistics::{n_statistics, statistic};

/// Prefix of a line that compares.
const COMPARE: &str = "compare with ";

/// Characters of a text shown in a line.
const QUOTED: usize = 60;

impl App {
    pub(super) fn open_palette(&mut self) {
        let items = self.palette_items();
        let heads = self.head_facts();
        self.overlay = Some(Overlay::Palette(Find::palette(items, typed, heads)));
    }

    /// The heads of the run as conditions see them.
    fn head_facts(&self) -> Vec<HeadFacts> {
        let scene = self.scene();
        let layers = scene.grids().into_iter();
        let layers = layers.flat_map(|grid| scene.layers_of(grid));
        let heads = layers.flat_map(|layer| {
            let heads = layer.heads.iter().enumerate();
            heads.map(move |(head_idx, head)| HeadFacts {
                grid: layer.stack,
                layer_idx: layer.layer_idx,
                head_idx,
                stats: head.stats.clone(),
                kind: head.kind,
            })
        });
        heads.collect()
    }

    /// Opens the palette with statistics only, the current one marked.
    pub(super) fn open_statistics(&mut self) {
        let items = self.statistic_items();
        let is_current = |item: &Item| item.target == Target::Statistic(self.statistic_idx);
        let current = items.iter().position(is_current);
        self.overlay = Some(Overlay::Palette(Find::at("statistics", items, current)));
    }

    fn palette_items(&self) -> Vec<Item> {
        let mut items = self.panel_items();
        items.extend(self.statistic_items());
        items.extend(checks_list::palette_items(self.scene()));
        items.extend(self.history_items());
        items.extend(self.action_items());
        items.extend(self.command_items());
        items.extend(self.colour_items());
        items.extend(self.supposed_items());
        items.extend(self.bookmark_items());
        items.extend(self.compare_items());
        items.extend(self.layer_items());
        items.extend(self.find_items());
        items.extend(self.prompt_items());
        items
    }

    fn panel_items(&self) -> Vec<Item> {
        let of = |panel: Panel| {
            let mut bindings = self.keys.of_group(Group::Everywhere);
            let binding = bindings.find(|(binding, _)| binding.action == Action::Go(panel));
            let about = |(binding, shown): (&Binding, &str)| format!("{shown} · {}", binding.help);
            Item {
                about: binding.map_or(String::new(), about),
                ..Item::new(panel.title(), "panel", Target::Panel(panel))
            }
        };
        // Prompts is always there to be opened.
        let shown: Vec<Panel> = self.panels().collect();
        let all = Panel::ALL.into_iter();
        let all = all.filter(|panel| *panel == Panel::Prompts || shown.contains(panel));
        all.map(of).collect()
    }

    fn statistic_items(&self) -> Vec<Item> {
        let scene = self.scene();
        let known = (0..n_statistics()).filter(|idx| scene.knows(*idx));
        known
            .map(|idx| (idx, statistic(idx)))
            .map(|(idx, statistic)| Item {
                also: statistic.id.to_owned(),
                about: statistic.definition.to_owned(),
                ..Item::new(statistic.title, "statistic", Target::Statistic(idx))
            })
            .collect()
    }

    /// The actions of keys here, except those that move the selection.
    fn action_items(&self) -> Vec<Item> {
        let groups = Group::ALL.into_iter();
        let all = groups.flat_map(|group| self.keys.of_group(group));
        let here = all.filter(|(binding, _)| {
            let is_here = binding.is_in(self.panel);
            let is_other = matches!(binding.action, Action::Go(_) | Action::Palette);
            is_here && !is_other && binding.group != Group::Moving
        });
        here.map(|(binding, shown)| {
            let lacks = self.lacks(binding.needs);
            Item {
                also: binding.label.to_owned(),
                about: match lacks {
                    Some(reason) => format!("{shown} · not now: {reason}"),
                    None if binding.label.is_empty() => shown.to_owned(),
                    None => format!("{shown} · {}", binding.label),
                },
                ..Item::new(binding.help, "action", Target::Action(binding.action))
            }
        })
        .collect()
    }

    fn layer_items(&self) -> Vec<Item> {
        let scene = self.scene();
        let grids = scene.grids().into_iter();
        let layers =
            grids.flat_map(|grid| (0..scene.n_layers_of(grid)).map(move |idx| (grid, idx)));
        layers
            .map(|(grid, layer_idx)| {
                let target = Target::Layer { grid, layer_idx };
                Item::new(Place::layer(grid, layer_idx).to_string(), "layer", target)
            })
            .collect()
    }

    /// What a run can be compared with: checkpoints next to the open one.
    fn compare_items(&self) -> Vec<Item> {
        let of = |path: &std::path::PathBuf| {
            let against = Against::Target(Opening::from(Some(path.clone())));
            let label = format!("{COMPARE}{}", path.display());
            Item::new(label, "compare", Target::Against(against))
        };
        self.known.nearby_checkpoints.iter().map(of).collect()
    }

    /// Texts that were run before.
    fn prompt_items(&self) -> Vec<Item> {
        let lacks = self
            .opened
            .as_ref()
            .and_then(|subject| subject.why_not(Ability::AnotherText));
        let known = self.known.prompts.iter().rev().filter(|_| lacks.is_none());
        known
            .map(|text| {
                let source = self.source_of(text);
                let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let label: String = shown.chars().take(QUOTED).collect();
                Item::new(format!("run “{label}”"), "prompt", Target::Prompt(source))
            })
            .collect()
    }

    /// Reads a stored prompt: as ids if there is no tokenizer.
    pub(super) fn source_of(&self, text: &str) -> Source {
        let ids = text.split(|c: char| c == ',' || c.is_whitespace());
        let ids = ids.filter(|word| !word.is_empty()).map(str::parse);
        match ids.collect::<Result<Vec<u32>, _>>() {
            _ if self.sees() => Source::picture(text),
            Ok(ids) if !self.has_tokenizer => Source::Ids(ids),
            _ => Source::Text(text.to_owned()),
        }
    }
}

/// Interprets a query as a command: a path or a text to compare with.
fn typed(query: &str) -> Option<Item> {
    let named = query.strip_prefix(COMPARE)?.trim();
    if named.is_empty() {
        return None;
    }
    let is_path =
        !is_sound(named) && (named.contains('/') || Path::new(named).extension().is_some());
    let against = if is_path && !named.contains(char::is_whitespace) {
        Against::Target(Opening::from(Some(named.into())))
    } else {
        Against::Prompt(Request::text(named))
    };
    let what = match against {
        Against::Target(_) => "a checkpoint or trace",
        Against::Prompt(_) => "a text",
        Against::Reload => "the code as it is now",
    };
    Some(Item {
        about: what.to_owned(),
        ..Item::new(query, "compare", Target::Against(against))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_after_compare_with_is_read_as_a_path_or_a_text() {
        let of = |query: &str| typed(query).map(|item| item.target);
        let path = Against::Target(Opening::from(Some("runs/b".into())));
        assert_eq!(of("compare with runs/b"), Some(Target::Against(path)));
        let text = Against::Prompt(Request::text("the king took it"));
        assert_eq!(
            of("compare with the king took it"),
            Some(Target::Against(text))
        );
        assert_eq!(of("compare with "), None);
        assert_eq!(of("entropy"), None);
    }
}

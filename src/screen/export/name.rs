//! File names of exports, such as `gpt2-head-L3H5-pattern`.

use std::path::Path;

use attnscope_checks::stats::STATISTICS;
use attnscope_run::HeadMap;

use crate::state::app::Overlay;
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use crate::state::shown_name;

/// Approximate bytes of a model's name, so that the whole file name fits on a line.
const LONGEST: usize = 32;

/// The name of an export without extension: the model, the panel, the head if one is shown, and the shown map or statistic.
pub fn name_of(app: Scene<'_>) -> String {
    let mut parts = vec![
        model(app),
        app.panel.title().to_lowercase().replace(' ', "-"),
    ];
    let at = app.selection;
    let is_of_several = app.panel.compares() && app.shows_marked();
    if app.panel.is_of_head() && !is_of_several {
        parts.extend(at.stack.label().map(str::to_owned));
        parts.push(format!("L{}H{}", at.layer_idx, at.head_idx));
    }
    let what = match app.panel {
        Panel::Overview | Panel::History => app.statistic().id.replace('_', "-"),
        Panel::Head => match (app.head_map(), app.head_view.hides_first_key) {
            (HeadMap::Pattern, true) => "pattern-without-first-key".to_owned(),
            (map, _) => map.name().to_owned(),
        },
        Panel::Tokens if app.tokens_view.shows_received => format!("received-by-{}", at.key_idx),
        Panel::Tokens => format!("given-by-{}", at.query_idx),
        Panel::Compare if is_of_several => "marked".to_owned(),
        Panel::Compare => app
            .runs
            .b
            .as_ref()
            .map_or(String::new(), |second| plain(&second.way.words())),
        Panel::Sweep => format!("query-{}", at.query_idx),
        Panel::Effect => format!("{}-{}", app.effect_view.measure.title(), at.query_idx),
        Panel::Prompts => {
            let ids = app.scatter_axes().map(|idx| STATISTICS[idx].id);
            ids.join("-").replace('_', "-")
        }
        Panel::Story => app
            .story
            .as_ref()
            .map_or(String::new(), |story| (story.page_idx + 1).to_string()),
        Panel::Scores | Panel::Model | Panel::Checks | Panel::Rows => String::new(),
    };
    parts.push(what);
    parts.push(match &app.overlay {
        None => String::new(),
        Some(Overlay::Help { .. }) => "help".to_owned(),
        Some(Overlay::Page { check, .. }) => format!("page-{}", check.id),
        Some(Overlay::Filter { .. }) => "filter".to_owned(),
        Some(Overlay::Find(_)) => "find".to_owned(),
        Some(Overlay::Palette(_)) => "palette".to_owned(),
        Some(Overlay::Edit(_)) => "edit".to_owned(),
        Some(Overlay::WhatIf(_)) => "what-if".to_owned(),
        Some(Overlay::Copy(_)) => "copy".to_owned(),
        Some(Overlay::Writing(_)) => "writing".to_owned(),
    });
    parts.retain(|part| !part.is_empty());
    parts.join("-")
}

/// The model, or what is being opened, as part of a file name.
fn model(app: Scene<'_>) -> String {
    let name = match app.subject() {
        Some(subject) => shown_name::name_of(subject),
        None => {
            let path = Path::new(&app.opening);
            let last = path.file_name().unwrap_or(path.as_os_str());
            last.to_string_lossy().into_owned()
        }
    };
    plain(&name)
}

/// Keeps letters, digits, points and dashes: nothing that a shell or a file system treats specially.
fn plain(name: &str) -> String {
    let mut plain = String::new();
    for c in name.chars() {
        if c.is_alphanumeric() || matches!(c, '.' | '_') {
            plain.push(c);
        } else if !plain.ends_with('-') {
            plain.push('-');
        }
        if plain.len() >= LONGEST {
            break;
        }
    }
    let plain = plain.trim_matches(['-', '.']);
    match plain {
        "" => "model".to_owned(),
        plain => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_nothing_that_a_file_system_treats_specially() {
        for (name, expected) in [
            ("gpt2", "gpt2"),
            ("org/My model (v2)", "org-My-model-v2"),
            ("../../etc", "etc"),
            ("llama-3.2_1B", "llama-3.2_1B"),
            ("-rf \u{0}\n", "rf"),
            ("…", "model"),
            ("", "model"),
        ] {
            assert_eq!(plain(name), expected);
        }
        assert!(plain(&"猫".repeat(100)).len() < LONGEST + 4);
    }
}

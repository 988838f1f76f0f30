//! What a picture is of, in words: for readers of screens, search, and whoever finds the file later.

use super::svg::Caption;
use crate::tui::scene::Scene;
use attnscope_engine::model::Stack;
use attnscope_engine::prompt::Source;

/// Letters of the text that are quoted.
const QUOTED: usize = 300;

pub fn caption(app: Scene<'_>) -> Caption {
    let mut title = vec!["attnscope".to_owned(), app.panel.title().to_owned()];
    let mut sentences = vec![format!(
        "The {} panel of attnscope, {} by {} cells",
        app.panel.title(),
        app.size.0,
        app.size.1
    )];
    match app.model() {
        None => sentences.push(format!("Opening {}", app.opening)),
        Some(model) => {
            title.push(model.checkpoint.name.clone());
            sentences.push(format!(
                "Model {}, {}",
                model.checkpoint.name, model.spec.family
            ));
        }
    }
    if app.panel.is_of_head() {
        let at = app.selection;
        let grid = match at.stack {
            Stack::Only => String::new(),
            stack => format!("{} ", stack.label().unwrap_or_default()),
        };
        title.push(format!("{grid}L{} H{}", at.layer_idx, at.head_idx));
        sentences.push(format!(
            "Selected: {grid}layer {} head {}, query {}, key {}",
            at.layer_idx, at.head_idx, at.query_idx, at.key_idx
        ));
    }
    if let Some(run) = app.run() {
        let n_tokens = run.prompt.tokens.len();
        let text = quoted(&run.source);
        sentences.push(format!("Text, {n_tokens} tokens: {text}"));
    }
    Caption {
        title: title.join(" · "),
        description: sentences.join(". "),
    }
}

/// The text or the ids that were asked for, cut where they are long.
fn quoted(source: &Source) -> String {
    let text = match source {
        Source::Text(text) => text.clone(),
        Source::Ids(ids) => {
            let ids: Vec<String> = ids.iter().take(QUOTED).map(u32::to_string).collect();
            ids.join(" ")
        }
    };
    let mut quoted: String = text.chars().take(QUOTED).collect();
    if text.chars().nth(QUOTED).is_some() {
        quoted.push('…');
    }
    quoted
}

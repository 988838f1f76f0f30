//! Captions of exported pictures: a description for screen readers, search, and later readers.

use attnscope_checkpoint::counted::counted;
use attnscope_prompt::Source;

use super::svg::Caption;
use crate::state::scene::Scene;
use crate::state::shown_name::name_of;

/// Characters quoted from the text.
const QUOTED: usize = 300;

pub fn caption(app: Scene<'_>) -> Caption {
    let mut title = vec!["attnscope".to_owned(), app.panel.title().to_owned()];
    let mut sentences = vec![format!(
        "The {} panel of attnscope, {} by {} cells",
        app.panel.title(),
        app.size.0,
        app.size.1
    )];
    match app.subject() {
        None => sentences.push(format!("Opening {}", app.opening)),
        Some(subject) => {
            title.push(name_of(subject));
            sentences.push(format!("Model {}, {}", name_of(subject), subject.kind()));
        }
    }
    if app.panel.is_of_head() {
        let at = app.selection;
        let head = at.head().to_string();
        sentences.push(format!(
            "Selected: {head}, query {}, key {}",
            at.query_idx, at.key_idx
        ));
        title.push(head);
    }
    if let Some(run) = app.run() {
        let n_tokens = counted(run.prompt.tokens.len(), "token");
        let text = quoted(&run.source);
        sentences.push(format!("Text, {n_tokens}: {text}"));
    }
    Caption {
        title: title.join(" · "),
        description: sentences.join(". "),
    }
}

/// The requested text or ids, shortened if long.
fn quoted(source: &Source) -> String {
    let text = match source {
        Source::Text(text) => text.clone(),
        Source::Picture(picture) => picture.to_string(),
        Source::Values(values) => values.path().display().to_string(),
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

//! The field of text over the panels: what it begins with, and what is done with what was typed.

use super::app::{App, Effect, Overlay};
use super::editor::{Editor, as_text};
use super::find::Target;
use super::keys;
use super::run::Preparing;
use super::runs::Way;
use crate::worker::Against;
use attnscope_engine::prompt::{Request, Source};

impl App {
    /// Opens the field with the text of A, or with the one that is compared with it.
    pub(super) fn edit(&mut self, is_beside: bool) {
        let empty = if self.has_tokenizer {
            Source::Text(String::new())
        } else {
            Source::Ids(Vec::new())
        };
        let beside = self.runs.b.as_ref().and_then(|second| match &second.way {
            Way::Against(Against::Prompt(request)) => Some(&request.source),
            _ => None,
        });
        let run = self.runs.a.as_ref().map(|run| &run.source);
        let source = beside.filter(|_| is_beside).or(run);
        let source = source.or(self.last_source.as_ref()).unwrap_or(&empty);
        let editor = Editor {
            is_beside,
            past: self.known.prompts.clone(),
            ..Editor::new(source)
        };
        self.overlay = Some(Overlay::Edit(Box::new(editor)));
    }

    /// Runs what was typed, alone or beside A, and keeps it for next time.
    pub(super) fn submitted(
        &mut self,
        request: Request,
        is_beside: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.overlay = None;
        let text = as_text(&request.source);
        if self.known.remember(&text) {
            effects.push(Effect::Remember(text));
        }
        if is_beside {
            self.compare_with(Against::Prompt(request));
        } else {
            self.preparing = Some(Preparing::Text);
            effects.push(Effect::Run(request));
        }
    }

    /// Goes to what was chosen from a list; an action that cannot be says why.
    pub(super) fn choose(&mut self, target: Target, effects: &mut Vec<Effect>) {
        self.notice = None;
        let lacks = match target {
            Target::Action(action) => {
                let binding = keys::BINDINGS
                    .iter()
                    .find(|binding| binding.action == action);
                binding.and_then(|binding| (binding.disabled)(self))
            }
            _ => None,
        };
        match lacks {
            Some(reason) => self.notice = Some(reason.to_owned()),
            None => self.go_to(target, effects),
        }
    }
}

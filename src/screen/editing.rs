//! The text field over the panels: its initial text, and what happens to what was typed.

use attnscope_prompt::{PictureSource, Request, Source};
use attnscope_worker::Against;
use crossterm::event::{KeyCode, KeyEvent};

use super::state::app::{App, Overlay};
use super::state::editor::{Editor, as_text};
use super::state::find::{Find, Item, Target};
use super::state::keys;
use super::state::keys::Action;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::runs::SecondRunKind;

/// Title of the list of earlier texts.
const EARLIER: &str = "earlier texts";

impl App {
    /// Whether the running model takes pictures.
    pub(super) fn sees(&self) -> bool {
        let run = self.runs.a.as_ref();
        let model = run.and_then(|run| run.subject.model());
        model.is_some_and(|model| model.spec.preprocessing().is_some())
    }

    /// Puts a pasted text into the text field, or into the filter that is typed.
    pub(super) fn paste(&mut self, text: &str) {
        match &mut self.overlay {
            Some(Overlay::Edit(editor)) => editor.paste(text),
            Some(Overlay::Filter { .. }) => self.paste_filter(text),
            _ => {}
        }
    }

    /// Opens the text field with the prompt of A, or with the prompt compared with it.
    pub(super) fn edit(&mut self, is_for_second: bool) {
        let empty = if self.sees() {
            Source::Picture(PictureSource::BuiltIn)
        } else if self.has_tokenizer {
            Source::Text(String::new())
        } else {
            Source::Ids(Vec::new())
        };
        let second_source = self.runs.b.as_ref().and_then(|second| match &second.way {
            SecondRunKind::Against(Against::Prompt(request)) => Some(&request.source),
            _ => None,
        });
        let run = self.runs.a.as_ref().map(|run| &run.source);
        let source = second_source.filter(|_| is_for_second).or(run);
        let source = source.or(self.last_source.as_ref()).unwrap_or(&empty);
        let mut editor = Editor {
            is_for_second,
            past: self.known.prompts.clone(),
            prompt_form: self.prompt_form.clone(),
            ..Editor::new(source)
        };
        editor.cut_again();
        self.overlay = Some(Overlay::Edit(Box::new(editor)));
    }

    /// Notice for a text with many unknown tokens: how to run one that the model knows.
    pub(super) fn unknown_text(&self) -> Option<String> {
        let unknown = self.runs.a.as_ref()?.prompt.all_lost().much()?;
        let [edits, finds] = [Action::Edit, Action::Palette].map(|action| self.keys.key(action));
        Some(if self.known.is_offered {
            format!(
                "{unknown}: {edits}, then ↑, gives a text of prompts.jsonl ({finds} lists them)"
            )
        } else {
            format!("{unknown}: {edits} takes text that the model knows")
        })
    }

    /// Opens the list of earlier texts in place of the text field, which waits for the chosen one.
    pub(super) fn search_texts(&mut self) {
        let Some(Overlay::Edit(editor)) = self.overlay.take() else {
            return;
        };
        let item = |text: &String| {
            let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            Item::new(shown, "prompt", Target::Prompt(self.source_of(text)))
        };
        let items: Vec<Item> = editor.past.iter().rev().map(item).collect();
        self.overlay = Some(Overlay::Palette(Find::at(EARLIER, items, None)));
        self.waiting_editor = Some(editor);
    }

    /// Closes a list. That of earlier texts gives the chosen one, if any, to the text field that waits for it.
    pub(super) fn close_list(
        &mut self,
        title: Option<&str>,
        chosen: Option<Target>,
        effects: &mut Vec<Effect>,
    ) {
        self.overlay = None;
        let editor = self.waiting_editor.take();
        match (editor.filter(|_| title == Some(EARLIER)), chosen) {
            (Some(mut editor), chosen) => {
                if let Some(Target::Prompt(source)) = chosen {
                    editor.replace(&as_text(&source));
                }
                self.overlay = Some(Overlay::Edit(editor));
            }
            (None, Some(target)) => self.choose(target, effects),
            (None, None) => {}
        }
    }

    /// Runs the submitted text, alone or as B beside A, and stores it for the next session.
    pub(super) fn submitted(
        &mut self,
        request: Request,
        is_for_second: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.overlay = None;
        let text = as_text(&request.source);
        if self.known.remember(&text) {
            effects.push(Effect::Remember(text));
        }
        if is_for_second {
            self.compare_with(Against::Prompt(request));
        } else {
            self.run_text(request, effects);
        }
    }

    /// Goes to an item chosen from a list; says why if its action is not possible.
    pub(super) fn choose(&mut self, target: Target, effects: &mut Vec<Effect>) {
        self.notice = None;
        match target {
            Target::Action(action) => self.act_if_enabled(action, effects),
            target => self.go_to(target, effects),
        }
    }

    /// Performs the action of a key, a hint or a palette line, or says why it is not possible.
    pub(super) fn act_if_enabled(&mut self, action: Action, effects: &mut Vec<Effect>) {
        let mut all = keys::BINDINGS.iter();
        let here = all.find(|row| row.action == action && row.is_in(self.panel));
        let any = || keys::BINDINGS.iter().find(|row| row.action == action);
        match here.or_else(any).and_then(|row| self.lacks(row.needs)) {
            Some(reason) => self.notice = Some(reason.to_owned()),
            None => self.act(action, effects),
        }
    }

    /// The action of a key in the current panel and state.
    pub(super) fn meant_by(&self, key: KeyEvent) -> Option<Action> {
        let of_match = self.has_matches().then(|| self.keys.match_binding_of(key));
        if let Some(row) = of_match.flatten() {
            return Some(row.action);
        }
        let action = self.keys.binding_of(key, self.panel).map(|row| row.action);
        let action = action.or_else(|| self.keys.command_of(key).map(Action::Command));
        let letter = match key.code {
            KeyCode::Char(letter) if key.modifiers.is_empty() => letter,
            _ => return action,
        };
        match (letter, action) {
            // While a run is marked as changed on disk, `r` reads it again, as the mark says, in every panel.
            ('r', _) if self.changed.is_some() && self.panel != Panel::History => {
                Some(Action::ReadAgain)
            }
            _ => action,
        }
    }
}

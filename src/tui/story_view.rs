//! The story that a demo tells: its pages, and which one is open.

use super::app::App;
use super::panel::Panel;
use super::panels::story::most_scroll;
use super::selection::step;
use super::view;
use crate::report::Page;
use attnscope_engine::error::Result;

/// Makes the pages; it may run models.
pub type Storyteller = Box<dyn FnOnce() -> Result<Vec<Page>> + Send>;

/// A story, as far as it is there.
#[derive(Debug, Default)]
pub struct StoryView {
    /// Empty while the models run.
    pub pages: Vec<Page>,
    pub page_idx: usize,
    /// Lines of its text above the first one shown.
    pub scroll: usize,
}

impl StoryView {
    pub fn page(&self) -> Option<&Page> {
        self.pages.get(self.page_idx)
    }
}

impl App {
    /// The panels that there are here: only demos tell stories.
    pub fn panels(&self) -> impl Iterator<Item = Panel> + use<> {
        let has_story = self.story.is_some();
        let all = Panel::ALL.into_iter();
        all.filter(move |panel| has_story || *panel != Panel::Story)
    }

    /// To another page, or along the text of this one.
    pub(super) fn step_story(&mut self, across: isize, down: isize) {
        let body = view::areas(self.size).body;
        let Some(story) = &mut self.story else { return };
        let page_idx = step(story.page_idx, across, story.pages.len());
        if page_idx != story.page_idx {
            (story.page_idx, story.scroll) = (page_idx, 0);
        }
        let most = story.page().map_or(0, |page| most_scroll(page, body));
        story.scroll = step(story.scroll, down, most + 1);
    }

    pub(super) fn take_story(&mut self, told: Result<Vec<Page>>) {
        match told {
            Ok(pages) => {
                self.story = Some(StoryView {
                    pages,
                    ..StoryView::default()
                });
            }
            Err(e) => {
                self.story = None;
                self.notice = Some(e.to_string());
                if self.panel == Panel::Story {
                    self.panel = Panel::Overview;
                }
            }
        }
    }
}

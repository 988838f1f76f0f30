//! Stories: takes in their pages and moves through them.

use attnscope_compute::error::Result;
use attnscope_report::Page;

use super::panels::story::most_scroll;
use super::state::app::App;
use super::state::panel::Panel;
use super::state::selection::step;
use super::state::story_view::StoryView;

impl App {
    /// Moves to another page, or scrolls the text of this one.
    pub(super) fn step_story(&mut self, across: isize, down: isize) {
        let body = self.areas().body;
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

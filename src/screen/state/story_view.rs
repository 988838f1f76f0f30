//! State of a demo's story: its pages, and which one is open.

use attnscope_compute::error::Result;
use attnscope_report::Page;

/// Makes the pages; it may run models.
pub type StoryLoader = Box<dyn FnOnce() -> Result<Vec<Page>> + Send>;

/// A story, as far as it has arrived.
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

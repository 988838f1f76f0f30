//! What was left behind, to go back to, and what was gone back from, to go forward to: views, and what runs.

/// Values left behind kept at most.
const MOST: usize = 200;

/// Values before the present one, and values after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail<T> {
    past: Vec<T>,
    future: Vec<T>,
}

impl<T> Default for Trail<T> {
    fn default() -> Self {
        Self {
            past: Vec::new(),
            future: Vec::new(),
        }
    }
}

impl<T: PartialEq> Trail<T> {
    /// Leaves a value behind for a new one: nothing lies ahead any more.
    pub fn leave(&mut self, here: T) {
        self.future.clear();
        if self.past.last() != Some(&here) {
            self.past.push(here);
        }
        let n_over = self.past.len().saturating_sub(MOST);
        self.past.drain(..n_over);
    }

    /// Goes back from a value to the one before it.
    pub fn back(&mut self, here: T) -> Option<T> {
        Self::step(&mut self.past, &mut self.future, here)
    }

    /// Goes forward from a value to the one that was gone back from.
    pub fn forward(&mut self, here: T) -> Option<T> {
        Self::step(&mut self.future, &mut self.past, here)
    }

    fn step(from: &mut Vec<T>, to: &mut Vec<T>, here: T) -> Option<T> {
        // A value that is the present one leads nowhere.
        while from.last() == Some(&here) {
            from.pop();
        }
        let found = from.pop()?;
        to.push(here);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_and_forward_lead_along_the_trail_and_a_new_value_ends_it() {
        let mut trail = Trail::default();
        trail.leave(1);
        trail.leave(2);
        assert_eq!(trail.back(3), Some(2));
        assert_eq!(trail.back(2), Some(1));
        assert_eq!(trail.back(1), None);
        assert_eq!(trail.forward(1), Some(2));
        trail.leave(2);
        assert_eq!(trail.forward(5), None);
        assert_eq!(trail.back(5), Some(2));
        // What is here already is passed over.
        assert_eq!(trail.back(1), None);
    }
}

//! Counts with a noun: 1 layer, 2 layers.

/// Formats a count with its noun, given in the singular: `1 unit`, `0 units`, `2 queries`.
pub fn counted(n: usize, one: &str) -> String {
    if n == 1 {
        return format!("{n} {one}");
    }
    match one.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{n} {stem}ies"),
        _ if one.ends_with(['s', 'x']) || one.ends_with("ch") || one.ends_with("sh") => {
            format!("{n} {one}es")
        }
        _ => format!("{n} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn only_a_count_of_one_is_singular() {
        assert_eq!(counted(1, "unit"), "1 unit");
        assert_eq!(counted(0, "unit"), "0 units");
        assert_eq!(counted(2, "other prompt"), "2 other prompts");
        assert_eq!(counted(3, "query"), "3 queries");
        assert_eq!(counted(3, "key"), "3 keys");
        assert_eq!(counted(2, "box"), "2 boxes");
        assert_eq!(counted(2, "patch"), "2 patches");
    }
}

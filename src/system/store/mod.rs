//! Targets, inputs and outputs in an object store (`s3://bucket/prefix`): copied to a scratch directory, and uploaded from there.
//!
//! Without the feature `s3`, every function returns paths unchanged and refuses addresses with an error.

mod address;
#[cfg(feature = "s3")]
mod bucket;
#[cfg(feature = "s3")]
mod credentials;
#[cfg(feature = "s3")]
mod scratch;
#[cfg(feature = "s3")]
mod staging;

pub use self::address::{Address, is_address};
#[cfg(feature = "s3")]
pub use self::scratch::{put_scratch_in, remove_scratch};
#[cfg(feature = "s3")]
pub use self::staging::{
    expanded, fetched, listed, mirrored, pull, push, release, staged, written,
};
#[cfg(not(feature = "s3"))]
pub use self::without::{
    expanded, fetched, listed, mirrored, pull, push, put_scratch_in, release, remove_scratch,
    staged, written,
};

#[cfg(not(feature = "s3"))]
mod without {
    //! Stubs for a build without the feature.

    use std::path::{Path, PathBuf};

    use super::is_address;
    use attnscope_compute::error::{Error, Result};

    fn refused<T>(path: &Path, otherwise: T) -> Result<T> {
        if is_address(path) {
            let problem = "this build has no s3; build with --features s3";
            return Err(Error::file(path, problem));
        }
        Ok(otherwise)
    }

    /// Refuses an address; returns a path unchanged.
    ///
    /// # Errors
    /// When it is an address.
    pub fn staged(path: &Path) -> Result<PathBuf> {
        refused(path, path.to_path_buf())
    }

    /// Refuses an address; returns a path unchanged.
    ///
    /// # Errors
    /// When it is an address.
    pub fn fetched(path: &Path) -> Result<PathBuf> {
        staged(path)
    }

    /// Refuses an address; returns a path unchanged.
    ///
    /// # Errors
    /// When it is an address.
    pub fn mirrored(path: &Path) -> Result<PathBuf> {
        staged(path)
    }

    /// Refuses an address; returns a path unchanged.
    ///
    /// # Errors
    /// When it is an address.
    pub fn written(path: &Path) -> Result<PathBuf> {
        staged(path)
    }

    /// Refuses an address; a path is not expanded.
    ///
    /// # Errors
    /// When it is an address.
    pub fn expanded(path: &Path) -> Result<Option<Vec<PathBuf>>> {
        refused(path, None)
    }

    /// Refuses an address; a path has no listing.
    ///
    /// # Errors
    /// When it is an address.
    pub fn listed(path: &Path) -> Result<Option<String>> {
        refused(path, None)
    }

    /// Does nothing: no path is a copy.
    pub fn pull(_local: &Path) {}

    /// Does nothing: no path is a copy.
    ///
    /// # Errors
    /// None.
    pub fn push(_local: &Path) -> Result<()> {
        Ok(())
    }

    /// Does nothing: no path is a copy.
    pub fn release(_target: &Path) {}

    /// Does nothing: nothing is staged.
    pub fn put_scratch_in(_directory: PathBuf) {}

    /// Does nothing: nothing is staged.
    pub fn remove_scratch() {}

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn addresses_are_refused_with_advice_and_paths_are_unchanged() {
            let said = |path: &str| staged(Path::new(path)).map_err(|e| e.to_string());
            assert_eq!(said("runs/step-1"), Ok(PathBuf::from("runs/step-1")));
            let refused = said("s3://runs/step-1").expect_err("refused");
            assert!(
                refused.contains("s3://runs/step-1") && refused.contains("--features s3"),
                "{refused}"
            );
            assert!(expanded(Path::new("s3://runs")).is_err());
        }
    }
}

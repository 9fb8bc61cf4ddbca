//! [`Look`]: what some files are at one moment; [`Watch`]: whether they have become something else, and stand still.
//!
//! Looking is all there is to it. Kubernetes swaps a symbolic link above the files of a volume, editors rename over a
//! file, certificate tools write in place or swap a directory: what all of them have in common is that the path then
//! leads to something else. The kernel's own watches follow files, not paths, and each of these would need its own.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What each of some paths leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look(BTreeMap<PathBuf, Option<Identity>>);

/// What tells one state of a file or a directory from another. Everything that writes to it, or puts something in its
/// place, changes one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Likewise; an edit that puts the time of modification back does not put this one back.
    changed: (i64, i64),
}

impl From<Metadata> for Identity {
    fn from(metadata: Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Look {
    /// Looks now, through symbolic links. What is not there, or cannot be looked at, is that.
    pub(super) fn at<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        let looked = paths.into_iter().map(|path| {
            let found = std::fs::metadata(path).ok().map(Identity::from);
            (path.to_owned(), found)
        });
        Self(looked.collect())
    }

    /// Looks at the same paths again.
    pub(super) fn again(&self) -> Self {
        Self::at(self.0.keys().map(PathBuf::as_path))
    }

    /// As it is, but for the paths of `other`, which are as they are there.
    pub(super) fn overlaid(mut self, other: &Self) -> Self {
        self.0
            .extend(other.0.iter().map(|(path, found)| (path.clone(), *found)));
        self
    }

    /// Whether a path of both leads to something else in `other`.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        let mut both = self
            .0
            .iter()
            .filter_map(|(path, found)| Some((found, other.0.get(path)?)));
        both.any(|(one, other)| one != other)
    }

    /// The part of it that is about these paths.
    pub(super) fn only<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> Self {
        let part = paths.into_iter().filter_map(|path| self.0.get_key_value(path));
        Self(part.map(|(path, found)| (path.clone(), *found)).collect())
    }
}

/// Waits for files to become something else than what was judged.
#[derive(Debug)]
pub(super) struct Watch {
    judged: Look,
    last: Look,
}

impl Watch {
    /// These were judged.
    pub(super) fn new(judged: Look) -> Self {
        Self {
            last: judged.clone(),
            judged,
        }
    }

    /// What was judged, for the next look at it.
    pub(super) fn judged(&self) -> &Look {
        &self.judged
    }

    /// Takes another look, and says whether it is time to judge: they are something else, and two looks agree, so that
    /// nobody is in the middle of writing them.
    pub(super) fn sees(&mut self, look: Look) -> bool {
        let stands_still = look == self.last;
        self.last = look;
        stands_still && self.last != self.judged
    }

    /// They shall be judged again, though they be the same.
    pub(super) fn forget(&mut self) {
        self.judged.0.values_mut().for_each(|found| *found = None);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_judged_when_two_looks_agree_on_something_new() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "a").unwrap();
        let mut watch = Watch::new(Look::at([path.as_path()]));
        let sees = |watch: &mut Watch| {
            let look = watch.judged().again();
            watch.sees(look)
        };
        assert!(!sees(&mut watch));
        fs::write(&path, "ab").unwrap();
        assert!(!sees(&mut watch), "it may still be written");
        fs::write(&path, "abc").unwrap();
        assert!(!sees(&mut watch), "it was");
        assert!(sees(&mut watch));
        fs::remove_file(&path).unwrap();
        assert!(!sees(&mut watch));
        assert!(sees(&mut watch), "its absence is judged too");
    }

    #[test]
    fn a_swapped_link_above_a_file_is_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for version in ["..v1", "..v2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("secret"), "same length").unwrap();
        }
        symlink("..v1", at("..data")).unwrap();
        symlink("..data/secret", at("secret")).unwrap();
        let look = Look::at([at("secret").as_path()]);
        assert_eq!(look.again(), look);
        symlink("..v2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_ne!(look.again(), look);
    }

    #[test]
    fn what_was_forgotten_is_judged_again() {
        let directory = tempfile::tempdir().unwrap();
        let look = Look::at([directory.path()]);
        let mut watch = Watch::new(look.clone());
        assert!(!watch.sees(look.clone()));
        watch.forget();
        assert!(watch.sees(look));
    }
}

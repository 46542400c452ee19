//! A thread of a blog server, by Blogbench's method: every file is written under another
//! name and renamed, so that readers never see a part of it.
//!
//! A thread has a directory of blogs of its own. In turns it creates a blog with articles
//! and pictures, and then changes as many articles, pictures and comments of random blogs.
//! Blogs are created again when there are [`BLOGS`]: what is written then takes the place
//! of what was there.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

use crate::harness::error::{Error, Result};

/// Blogs of a thread.
const BLOGS: u64 = 8;
/// Files of each kind in a blog, at most; Blogbench has 100.
const FILES: u64 = 8;
/// Bytes that are written at once, as in Blogbench.
const CHUNK: usize = 8192;

/// The kinds of files, and how large they are, as in Blogbench.
#[derive(Clone, Copy)]
enum Kind {
    Article,
    Picture,
    Comment,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Article => "article",
            Kind::Picture => "picture",
            Kind::Comment => "comment",
        }
    }

    fn bytes(self) -> Range<u64> {
        match self {
            Kind::Article => 1024..32768,
            Kind::Picture => 8192..65536,
            Kind::Comment => 2048..10240,
        }
    }
}

/// A file to write.
#[derive(Clone, Copy)]
struct Post {
    blog: u64,
    kind: Kind,
    number: u64,
}

/// A thread's blogs.
pub(super) struct Blog {
    dir: PathBuf,
    random: u64,
    /// How many blogs have been created.
    created: u64,
    /// What is to be written next, the last first.
    next: Vec<Post>,
}

impl Blog {
    /// Makes the directory, without blogs.
    pub(super) fn create(dir: PathBuf, seed: u64) -> Result<Blog> {
        for blog in 0..BLOGS {
            let path = dir.join(format!("blog-{blog}"));
            fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        }
        Ok(Blog {
            dir,
            random: seed,
            created: 0,
            next: Vec::new(),
        })
    }

    /// One operation: one file is written.
    pub(super) fn operate(&mut self) -> Result<()> {
        if self.next.is_empty() {
            self.plan();
        }
        let of = self.next.pop().expect("there is something to write");
        let name = format!("{}-{}", of.kind.name(), of.number);
        let path = self.dir.join(format!("blog-{}/{name}", of.blog));
        let partial = path.with_extension("tmp");
        let bytes = of.kind.bytes();
        let mut left = bytes.start + self.below(bytes.end - bytes.start);
        let mut file = File::create(&partial).map_err(Error::file("create", &partial))?;
        while left > 0 {
            let some = left.min(CHUNK as u64);
            file.write_all(&[0x5a; CHUNK][..some as usize])
                .map_err(Error::file("write", &partial))?;
            left -= some;
        }
        drop(file);
        fs::rename(&partial, &path).map_err(Error::file("rename", &partial))
    }

    /// A new blog, then changes and comments of others.
    fn plan(&mut self) {
        let blog = self.created % BLOGS;
        self.created += 1;
        let known = self.created.min(BLOGS);
        for kind in [Kind::Article, Kind::Picture] {
            for number in 0..1 + self.below(FILES) {
                self.next.push(Post { blog, kind, number });
            }
        }
        for _ in 0..self.next.len() {
            let kind = match self.below(4) {
                0 => Kind::Article,
                1 => Kind::Picture,
                _ => Kind::Comment,
            };
            let blog = self.below(known);
            let number = self.below(FILES);
            self.next.insert(0, Post { blog, kind, number });
        }
    }

    /// The next random number (SplitMix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_whole_when_they_have_their_names_and_their_number_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut blog = Blog::create(dir.path().join("blogs"), 1).unwrap();
        for _ in 0..600 {
            blog.operate().unwrap();
        }
        let mut files = 0;
        for number in 0..BLOGS {
            let path = dir.path().join(format!("blogs/blog-{number}"));
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                assert_eq!(entry.path().extension(), None);
                assert!(entry.metadata().unwrap().len() >= 1024);
                files += 1;
            }
        }
        assert!(files > 60 && files <= BLOGS * FILES * 3, "{files}");
    }
}

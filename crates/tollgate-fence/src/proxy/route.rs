//! Which resource a request is about: one for all, by its path, or by a header.

use http::request::Parts;
use http::{HeaderName, StatusCode};
use tollgate_core::{Error, Result, gate};

use crate::problem::Problem;

/// Which resource a request is about.
///
/// ```
/// use tollgate_fence::Resources;
///
/// // One for everything.
/// let one = Resources::parse(&["shop"])?;
/// // By path, the first that fits.
/// let several = Resources::parse(&["/orders/{id}/*=orders/{id}", "/*=rest"])?;
/// assert!(Resources::parse(&["/orders/{id}=orders/{number}"]).is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Resources(Kind);

#[derive(Debug, Clone)]
enum Kind {
    One(String),
    Paths(Vec<Rule>),
    Header(HeaderName),
}

/// A pattern of paths and what the resource is called.
#[derive(Debug, Clone)]
struct Rule {
    segments: Vec<Segment>,
    /// Whether anything may follow.
    open: bool,
    name: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(String),
    Any(String),
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    /// What stood in this segment.
    Segment(usize),
}

impl Resources {
    /// One name for everything, or patterns of paths: `/orders/{id}/*=orders/{id}`. `{id}` is one segment, `*` at the end all
    /// that follow, also none. The first that fits is taken.
    ///
    /// # Errors
    /// `InvalidArgument` for what is neither.
    pub fn parse<S: AsRef<str>>(written: &[S]) -> Result<Self> {
        match written {
            [one] if !one.as_ref().starts_with('/') => {
                gate::check(one.as_ref())?;
                Ok(Self(Kind::One(one.as_ref().to_owned())))
            }
            rules => {
                let rules: Result<Vec<_>> = rules.iter().map(|rule| Rule::parse(rule.as_ref())).collect();
                Ok(Self(Kind::Paths(rules?)))
            }
        }
    }

    /// Whatever a header of the request says. Callers are trusted to name what they change.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be a header's name.
    pub fn by_header(name: &str) -> Result<Self> {
        let name =
            name.parse().map_err(|_| Error::invalid(format!("{name:?} is not a valid header name")))?;
        Ok(Self(Kind::Header(name)))
    }

    pub(crate) fn of(&self, parts: &Parts) -> Result<String, Problem> {
        match &self.0 {
            Kind::One(name) => Ok(name.clone()),
            Kind::Paths(rules) => {
                let segments = segments(parts.uri.path())?;
                rules.iter().find_map(|rule| rule.name_of(&segments)).ok_or_else(|| {
                    let detail =
                        "this path matches no resource, so the request cannot be fenced; nothing was \
                         forwarded";
                    Problem::new(StatusCode::BAD_REQUEST, "no-resource", detail)
                })
            }
            Kind::Header(name) => {
                let mut values = parts.headers.get_all(name).iter();
                match (values.next(), values.next()) {
                    (Some(value), None) => {
                        let name = std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned);
                        name.ok_or_else(|| Problem::malformed("the resource name is not UTF-8"))
                    }
                    (None, _) => Err(Problem::new(
                        StatusCode::PRECONDITION_REQUIRED,
                        "no-resource",
                        format!("name the resource of this request in the header {name}"),
                    )),
                    _ => Err(Problem::malformed(
                        "the header that names the resource appears twice; send it once",
                    )),
                }
            }
        }
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::invalid(format!("the resource {text:?} {why}; write NAME, or /PATH/{{id}}/*=NAME/{{id}}"))
        };
        let (path, name) = text.split_once('=').ok_or_else(|| wrong("has no =NAME after its path"))?;
        let path = path
            .strip_prefix('/')
            .ok_or_else(|| wrong("does not begin with a /, although several are given"))?;
        let (path, open) = match path.strip_suffix('*') {
            Some(rest) if rest.is_empty() || rest.ends_with('/') => (rest.trim_end_matches('/'), true),
            Some(_) => return Err(wrong("has a * that is not a segment of its own")),
            None => (path.strip_suffix('/').unwrap_or(path), false),
        };
        let mut segments = Vec::new();
        for segment in path.split('/').filter(|_| !path.is_empty()) {
            let inner = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            segments.push(match inner {
                Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Segment::Any(name.to_owned()),
                None if !segment.is_empty() && !segment.contains(['{', '}', '*']) => {
                    Segment::Text(segment.to_owned())
                }
                _ => return Err(wrong("has a segment that is neither text nor {name}")),
            });
        }
        let name = pieces(name, &segments).ok_or_else(|| wrong("has a {name} that is not in its path"))?;
        if name.is_empty() {
            return Err(wrong("has no name after its ="));
        }
        Ok(Self { segments, open, name })
    }

    fn name_of(&self, path: &[String]) -> Option<String> {
        let fits =
            if self.open { path.len() >= self.segments.len() } else { path.len() == self.segments.len() };
        let same = self.segments.iter().zip(path).all(|(segment, text)| match segment {
            Segment::Text(wanted) => wanted == text,
            Segment::Any(_) => true,
        });
        (fits && same).then(|| {
            let text = |piece: &Piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Segment(place) => path[*place].clone(),
            };
            self.name.iter().map(text).collect()
        })
    }
}

fn pieces(name: &str, segments: &[Segment]) -> Option<Vec<Piece>> {
    let (mut pieces, mut rest) = (Vec::new(), name);
    while let Some((text, after)) = rest.split_once('{') {
        let (inner, after) = after.split_once('}')?;
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        let wanted = Segment::Any(inner.to_owned());
        pieces.push(Piece::Segment(segments.iter().position(|segment| *segment == wanted)?));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Some(pieces)
}

/// The segments of a path, decoded. What a service might take for another path than it looks like is refused: one resource
/// must not have two names.
fn segments(path: &str) -> Result<Vec<String>, Problem> {
    let strange =
        || Problem::malformed("this path is ambiguous; write it without //, dots as segments, %2F and %5C");
    let path = path.strip_prefix('/').ok_or_else(strange)?;
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let decoded = path.split('/').map(|segment| {
        let text = decoded(segment).ok_or_else(strange)?;
        let odd = matches!(&*text, "" | "." | "..")
            || text.contains(['/', '\\', ';'])
            || text.chars().any(char::is_control);
        if odd { Err(strange()) } else { Ok(text) }
    });
    decoded.collect()
}

fn decoded(segment: &str) -> Option<String> {
    String::from_utf8(unescaped(segment.as_bytes())?).ok()
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
            bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*byte);
        }
    }
    Some(bytes)
}

/// How often a path may be decoded on its way through a service.
const DECODED: usize = 4;

/// Whether a service may see `.` or `..` as a segment of this path, however it decodes it and cuts it into segments.
pub(super) fn has_dots(path: &str) -> bool {
    let mut path = path.as_bytes().to_vec();
    for _ in 0..DECODED {
        // The bytes 192 and 193 begin no character: careless decoders make dots and slashes of them.
        if path.iter().any(|byte| matches!(byte, 0xc0 | 0xc1)) || path.split(is_separator).any(is_dots) {
            return true;
        }
        let once = leniently_unescaped(&path);
        if once == path {
            return false;
        }
        path = once;
    }
    true
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b'/' | b'\\')
}

/// Whether a segment is `.` or `..` to a service, which may not count parameters, white space and what follows a zero byte.
fn is_dots(segment: &[u8]) -> bool {
    let end = segment.iter().position(|byte| matches!(byte, b';' | 0)).unwrap_or(segment.len());
    let name = segment[..end].trim_ascii_end();
    matches!(name, b"." | b"..")
}

/// What a decoder makes of a path that leaves alone what it does not understand.
fn leniently_unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(byte) = rest.first() {
        match rest.get(..3).filter(|_| *byte == b'%').and_then(unescaped).as_deref() {
            Some([decoded]) => {
                bytes.push(*decoded);
                rest = &rest[3..];
            }
            _ => {
                bytes.push(*byte);
                rest = &rest[1..];
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(rules: &[&str], path: &str) -> Result<String, StatusCode> {
        let (parts, ()) = http::Request::put(path).body(()).unwrap().into_parts();
        Resources::parse(rules).unwrap().of(&parts).map_err(|problem| problem.status())
    }

    #[test]
    fn the_first_pattern_that_fits_names_the_resource() {
        let rules =
            ["/orders/{id}/*=orders/{id}", "/users/{user}/posts/{post}={post}@{user}", "/=root", "/*=rest"];
        for (path, name) in [
            ("/orders/42", "orders/42"),
            ("/orders/42/", "orders/42"),
            ("/orders/42/lines/7?x=1", "orders/42"),
            ("/orders/%34%32", "orders/42"),
            ("/orders/a%20b", "orders/a b"),
            ("/orders", "rest"),
            ("/users/u/posts/p", "p@u"),
            ("/users/u/posts/p/q", "rest"),
            ("/", "root"),
        ] {
            assert_eq!(named(&rules, path).as_deref(), Ok(name), "{path}");
        }
        assert_eq!(named(&["shop"], "//any%2F"), Ok("shop".to_owned()));
        assert_eq!(named(&["/a=a"], "/b"), Err(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_is_refused() {
        for path in [
            "//orders/42",
            "/orders//42",
            "/orders/./42",
            "/orders/../x",
            "/orders/%2e%2e",
            "/a%2Fb",
            "/a%5cb",
            "/a%",
            "/a%zz",
            "/a%00",
            "/a%ff",
            "/a;x=1",
        ] {
            assert_eq!(named(&["/*=all"], path), Err(StatusCode::BAD_REQUEST), "{path}");
        }
    }

    #[test]
    fn dots_are_seen_however_they_are_written() {
        for path in [
            "/..",
            "/a/.",
            "/%zz/%252e%252e",
            "/a%2f.%2e",
            "/%25252e",
            "/a\\..",
            "/..;a=b",
            "/.. ",
            "/%c0%ae",
        ] {
            assert!(has_dots(path), "{path}");
        }
        for path in ["/", "", "/a..b", "/...", "/%zz", "/a;..", "/100%", "/%25", "/%e2%80%a6", "/.hidden/x."]
        {
            assert!(!has_dots(path), "{path}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_what_to_write() {
        for rules in [
            &["/a"][..],
            &["/a="],
            &["/a*=x"],
            &["/*/a=x"],
            &["/{a}=x{b}"],
            &["/{}=x"],
            &["/{a}b=x"],
            &["a", "b"],
            &[""],
            &["/a=x{"],
        ] {
            let error = Resources::parse(rules).unwrap_err();
            assert_eq!(error.kind(), tollgate_core::ErrorKind::InvalidArgument, "{rules:?}");
        }
    }
}

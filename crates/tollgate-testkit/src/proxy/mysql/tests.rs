//! Conversations with a MySQL that was never there.

use super::*;

fn packet(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], content].concat()
}

fn packets(contents: &[&[u8]]) -> Vec<u8> {
    contents.iter().zip(1..).flat_map(|(content, number)| packet(number, content)).collect()
}

/// A greeting of a server that can do this.
fn greeting(capabilities: u64) -> Vec<u8> {
    let [a, b, c, d, own @ ..] = capabilities.to_le_bytes();
    let content = [
        &b"\x0a10.11.2-MariaDB\0"[..],
        &[1, 0, 0, 0],
        &[7; 8],
        &[0],
        &[a, b],
        &[33, 2, 0],
        &[c, d],
        &[21],
        &[0; 6],
        &own,
    ];
    packet(0, &content.concat())
}

fn introduction(capabilities: u64) -> Vec<u8> {
    let (usual, own) = (capabilities as u32, (capabilities >> 32) as u32);
    packet(1, &[&usual.to_le_bytes()[..], &[0; 24], &own.to_le_bytes(), b"root\0"].concat())
}

fn begun(server: u64, client: u64) -> Talk {
    let mut wire = Talk::default();
    let hello = greeting(server);
    assert_eq!(wire.answer(&hello), Ok(Some(Answer::Confirmation(hello.len()))));
    ask(&mut wire, &introduction(client), true);
    replies(&mut wire, &packet(2, &[OK, 0, 0, 2, 0, 0, 0]));
    wire
}

fn ask(wire: &mut Talk, bytes: &[u8], answered: bool) {
    assert_eq!(wire.request(&bytes[..bytes.len() - 1]), Ok(None));
    assert_eq!(wire.request(bytes), Ok(Some(Request { length: bytes.len(), answered })));
}

/// All of it is one reply, and nothing less is. The same question may be asked again.
fn replies(wire: &mut Talk, bytes: &[u8]) {
    wire.repeated();
    for part in 0..bytes.len() {
        assert_eq!(wire.answer(&bytes[..part]), Ok(None), "of {part} bytes");
    }
    let with_more = [bytes, &[1, 0, 0]].concat();
    assert_eq!(wire.answer(&with_more), Ok(Some(Answer::Reply(bytes.len()))));
}

/// Another question than before.
fn forget(wire: &mut Talk) {
    wire.shapes.clear();
}

const DONE: &[u8] = &[OK, 1, 0, 2, 0, 0, 0];
const REFUSED: &[u8] = b"\xff\x28\x04#42000no";
const END: &[u8] = &[EOF, 0, 0, 2, 0];
const END_AND_MORE: &[u8] = &[EOF, 0, 0, 0x0a, 0];
const LAST_OK: &[u8] = &[EOF, 0, 0, 2, 0, 0, 0];

#[test]
fn a_result_ends_with_the_rows() {
    let mut wire = begun(DEPRECATE_EOF, 0);
    ask(&mut wire, &packet(0, b"\x03select 1"), true);
    replies(&mut wire, &packets(&[DONE]));
    replies(&mut wire, &packets(&[REFUSED]));
    replies(&mut wire, &packets(&[&[2], b"def a", b"def b", END, b"\x011\x012", END]));
    replies(&mut wire, &packets(&[&[1], b"def a", END, b"\x011", REFUSED]));
}

#[test]
fn a_result_ends_with_an_ok_where_both_agreed_on_that() {
    let mut wire = begun(DEPRECATE_EOF, DEPRECATE_EOF);
    ask(&mut wire, &packet(0, b"\x03select 1"), true);
    replies(&mut wire, &packets(&[&[1], b"def a", b"\x011", LAST_OK]));
    replies(&mut wire, &packets(&[&[1], b"def a", LAST_OK]));
}

#[test]
fn columns_that_are_known_already_are_left_out_where_both_agreed_on_that() {
    let both = DEPRECATE_EOF | CACHE_METADATA;
    let mut wire = begun(both, both);
    ask(&mut wire, &packet(0, &[0x17, 1, 0, 0, 0, 0, 1, 0, 0, 0]), true);
    replies(&mut wire, &packets(&[&[1, 0], LAST_OK]));
    replies(&mut wire, &packets(&[&[1, 0], b"\0\0row", LAST_OK]));
    replies(&mut wire, &packets(&[&[1, 1], b"def a", LAST_OK]));
}

#[test]
fn a_reply_goes_on_while_the_server_says_so() {
    let mut wire = begun(0, 0);
    ask(&mut wire, &packet(0, b"\x03call something()"), true);
    let more = &[OK, 1, 0, 0x0a, 0, 0, 0];
    replies(&mut wire, &packets(&[&[1], b"def a", END, b"\x011", END_AND_MORE, more, DONE]));
}

#[test]
fn a_prepared_statement_comes_with_its_parameters_and_columns() {
    let statement = &[OK, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0];
    let mut wire = begun(0, 0);
    ask(&mut wire, &packet(0, b"\x16select ?+?"), true);
    replies(&mut wire, &packets(&[statement, b"def ?", b"def ?", END, b"def a", END]));
    replies(&mut wire, &packets(&[REFUSED]));
    let mut wire = begun(DEPRECATE_EOF, DEPRECATE_EOF);
    ask(&mut wire, &packet(0, b"\x16select ?+?"), true);
    replies(&mut wire, &packets(&[statement, b"def ?", b"def ?", b"def a"]));
    forget(&mut wire);
    ask(&mut wire, &packet(0, &[0x17, 1, 0, 0, 0, 0, 1, 0, 0, 0]), true);
    replies(&mut wire, &packets(&[DONE]));
    ask(&mut wire, &packet(0, &[CLOSE_STATEMENT, 1, 0, 0, 0]), false);
    ask(&mut wire, &packet(0, &[QUIT]), false);
}

#[test]
fn what_comes_twice_or_never_does_not_confuse_the_replies() {
    let mut wire = begun(DEPRECATE_EOF, DEPRECATE_EOF);
    let (query, prepare) = (packet(0, b"\x03select 1"), packet(0, b"\x16select 1"));
    wire.request(&prepare).unwrap();
    wire.lost();
    wire.request(&query).unwrap();
    wire.repeated();
    wire.request(&prepare).unwrap();
    let (rows, statement) =
        (packets(&[&[1], b"def a", LAST_OK]), packets(&[&[OK, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], b"def a"]));
    let all = [&rows[..], &rows, &statement].concat();
    assert_eq!(wire.answer(&all), Ok(Some(Answer::Reply(rows.len()))));
    assert_eq!(wire.answer(&all[rows.len()..]), Ok(Some(Answer::Reply(rows.len()))));
    assert_eq!(wire.answer(&statement), Ok(Some(Answer::Reply(statement.len()))));
}

#[test]
fn whoever_is_asked_again_for_a_password_asks_again() {
    let mut wire = Talk::default();
    let hello = greeting(DEPRECATE_EOF);
    assert_eq!(wire.answer(&hello), Ok(Some(Answer::Confirmation(hello.len()))));
    ask(&mut wire, &introduction(DEPRECATE_EOF), true);
    replies(&mut wire, &packets(&[b"\xfemysql_native_password\0salt"]));
    ask(&mut wire, &packet(3, b"scrambled"), true);
    replies(&mut wire, &packets(&[&[MORE_DATA, 3], DONE]));
    ask(&mut wire, &packet(0, b"\x03select 1"), true);
    replies(&mut wire, &packets(&[DONE]));
}

#[test]
fn who_asks_for_encryption_cannot_be_read_any_more() {
    let mut wire = Talk::default();
    let hello = greeting(CLIENT_SSL);
    assert_eq!(wire.answer(&hello), Ok(Some(Answer::Confirmation(hello.len()))));
    ask(&mut wire, &packet(1, &[&CLIENT_SSL.to_le_bytes()[..], &[0; 24]].concat()), false);
    assert_eq!(wire.request(&[22, 3, 1]), Ok(Some(Request { length: 3, answered: true })));
    assert_eq!(wire.answer(&[22, 3, 3]), Ok(Some(Answer::Reply(3))));
}

#[test]
fn what_is_too_long_is_noticed() {
    assert_eq!(begun(0, 0).answer(&[255, 255, 255, 0]), Err(Garbled));
}

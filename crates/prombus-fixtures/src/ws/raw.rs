//! Frames as bytes, to write what no client should.

/// A frame as bytes, masked or not.
pub fn bare_frame(first: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = frame_head(first, masked, payload.len() as u64);
    if masked {
        let mask = [7, 77, 177, 27];
        out.extend_from_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    } else {
        out.extend_from_slice(payload);
    }
    out
}

/// The first bytes of a frame, up to its length.
pub fn frame_head(first: u8, masked: bool, length: u64) -> Vec<u8> {
    let mask = if masked { 0x80 } else { 0 };
    let mut out = vec![first];
    if let Ok(short) = u8::try_from(length)
        && short < 126
    {
        out.push(mask | short);
    } else if let Ok(middle) = u16::try_from(length) {
        out.push(mask | 126);
        out.extend_from_slice(&middle.to_be_bytes());
    } else {
        out.push(mask | 127);
        out.extend_from_slice(&length.to_be_bytes());
    }
    out
}

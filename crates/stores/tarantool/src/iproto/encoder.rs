use rmp::encode::buffer::ByteBuf;

/// Writes `MessagePack` values into a connection's reused buffer.
///
/// Write an array or map as its header followed by its elements: `e.array(2).u64(1).str("x");`
#[derive(Debug)]
pub struct Encoder(ByteBuf);

// The writes cannot fail: the buffer's error type has no value, which the irrefutable `Ok` patterns show.
impl Encoder {
    pub(crate) fn new() -> Self {
        Self(ByteBuf::new())
    }

    pub(super) fn clear(&mut self) {
        self.0.as_mut_vec().clear();
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.0.as_mut_vec()
    }

    /// Writes a string that need not be UTF-8. For one beyond 4 GiB see [`str`](Self::str).
    pub fn raw_str(&mut self, value: &[u8]) -> &mut Self {
        let Ok(_) = rmp::encode::write_str_len(&mut self.0, u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes_mut().extend_from_slice(value);
        self
    }

    /// Writes the header of an array of `len` values.
    pub fn array(&mut self, len: u32) -> &mut Self {
        let Ok(_) = rmp::encode::write_array_len(&mut self.0, len);
        self
    }

    /// Writes the header of a map of `len` pairs of key and value.
    pub fn map(&mut self, len: u32) -> &mut Self {
        let Ok(_) = rmp::encode::write_map_len(&mut self.0, len);
        self
    }

    /// Writes an integer that is not negative, in its shortest form.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        let Ok(_) = rmp::encode::write_uint(&mut self.0, value);
        self
    }

    /// Writes an integer of either sign, in its shortest form.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        let Ok(_) = rmp::encode::write_sint(&mut self.0, value);
        self
    }

    /// Writes a floating-point number of 64 bits.
    pub fn f64(&mut self, value: f64) -> &mut Self {
        let Ok(()) = rmp::encode::write_f64(&mut self.0, value);
        self
    }

    /// Writes a string. One beyond 4 GiB makes the request [`super::Error::TooLong`], whatever its header says.
    pub fn str(&mut self, value: &str) -> &mut Self {
        let Ok(()) = rmp::encode::write_str(&mut self.0, value);
        self
    }

    /// Writes a binary value (in Lua a string; the type of a field for it is `varbinary`).
    pub fn bin(&mut self, value: &[u8]) -> &mut Self {
        let Ok(()) = rmp::encode::write_bin(&mut self.0, value);
        self
    }

    pub fn bool(&mut self, value: bool) -> &mut Self {
        let Ok(()) = rmp::encode::write_bool(&mut self.0, value);
        self
    }

    /// Writes nil, the value of an absent field.
    pub fn nil(&mut self) -> &mut Self {
        let Ok(()) = rmp::encode::write_nil(&mut self.0);
        self
    }
}

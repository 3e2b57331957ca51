import com.eatthepath.pushy.apns.auth.ApnsSigningKey;
import java.math.BigInteger;
import java.security.InvalidKeyException;
import java.security.InvalidParameterException;
import java.security.NoSuchAlgorithmException;
import java.security.NoSuchProviderException;
import java.security.PrivateKey;
import java.security.Provider;
import java.security.PublicKey;
import java.security.Security;
import java.security.Signature;
import java.security.SignatureException;
import java.security.SignatureSpi;
import java.util.Arrays;

/**
 * Lets Pushy read and write the signatures of provider tokens as RFC 7518 (3.4) wants them: R and S, 32 bytes each. By
 * itself it knows DER only. Put before Java's own provider; TLS goes on to sign with DER, and DER is verified as well.
 */
public final class RawEs256 extends Provider {
    private static final long serialVersionUID = 1;
    private static final int NUMBER_BYTES = 32;

    private RawEs256() {
        super("RawEs256", "1", "SHA256withECDSA whose signatures may be raw");
        put("Signature.SHA256withECDSA", Spi.class.getName());
    }

    static void install() {
        Security.insertProviderAt(new RawEs256(), 1);
    }

    /** Java's own, which knows both forms, but one at a time and under two names. */
    public static final class Spi extends SignatureSpi {
        private Signature own;

        public Spi() throws NoSuchAlgorithmException, NoSuchProviderException {
            own = Signature.getInstance("SHA256withECDSA", "SunEC");
        }

        @Override
        protected void engineInitVerify(final PublicKey key) throws InvalidKeyException {
            own.initVerify(key);
        }

        @Override
        protected void engineInitSign(final PrivateKey key) throws InvalidKeyException {
            if (key instanceof ApnsSigningKey) {
                try {
                    own = Signature.getInstance("SHA256withECDSAinP1363Format", "SunEC");
                } catch (final NoSuchAlgorithmException | NoSuchProviderException e) {
                    throw new InvalidKeyException(e);
                }
            }
            own.initSign(key);
        }

        @Override
        protected void engineUpdate(final byte value) throws SignatureException {
            own.update(value);
        }

        @Override
        protected void engineUpdate(final byte[] bytes, final int offset, final int count) throws SignatureException {
            own.update(bytes, offset, count);
        }

        @Override
        protected byte[] engineSign() throws SignatureException {
            return own.sign();
        }

        @Override
        protected boolean engineVerify(final byte[] signature) throws SignatureException {
            return own.verify(signature.length == 2 * NUMBER_BYTES ? toDer(signature) : signature);
        }

        @Override
        @Deprecated
        protected void engineSetParameter(final String name, final Object value) throws InvalidParameterException {
            throw new InvalidParameterException(name);
        }

        @Override
        @Deprecated
        protected Object engineGetParameter(final String name) throws InvalidParameterException {
            throw new InvalidParameterException(name);
        }
    }

    /** SEQUENCE { INTEGER r, INTEGER s }; all lengths are below 128. */
    private static byte[] toDer(final byte[] raw) {
        final byte[] r = new BigInteger(1, Arrays.copyOf(raw, NUMBER_BYTES)).toByteArray();
        final byte[] s = new BigInteger(1, Arrays.copyOfRange(raw, NUMBER_BYTES, raw.length)).toByteArray();
        final byte[] der = new byte[6 + r.length + s.length];
        der[0] = 0x30;
        der[1] = (byte) (der.length - 2);
        der[2] = 0x02;
        der[3] = (byte) r.length;
        System.arraycopy(r, 0, der, 4, r.length);
        der[4 + r.length] = 0x02;
        der[5 + r.length] = (byte) s.length;
        System.arraycopy(s, 0, der, 6 + r.length, s.length);
        return der;
    }
}

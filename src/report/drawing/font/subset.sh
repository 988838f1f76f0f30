#!/usr/bin/env bash
# Makes the font of figures from DejaVu Sans 2.37 (Debian: fonts-dejavu-core): Latin, Greek, Cyrillic, punctuation, arrows, mathematics.
# Needs fonttools (pip install fonttools).
set -euo pipefail
cd "$(dirname "$0")"
pyftsubset "${1:-/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf}" --output-file=DejaVuSans-figures.ttf \
  --unicodes="U+0020-024F,U+02B0-036F,U+0370-052F,U+2000-206F,U+2070-209F,U+20A0-20BF,U+2100-214F,U+2190-2211,U+2212-22FF,U+2318,U+2380-23CF,U+2420-2426,U+2500-25FF,U+2581,U+2713,U+2717,U+FFFD" \
  --layout-features="" --no-hinting --desubroutinize --drop-tables+=FFTM,GDEF,GPOS,GSUB,kern,prep,fpgm,cvt,gasp --name-IDs="0,1,2,4,5,6,13,14"

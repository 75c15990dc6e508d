"""The address by which pickles name these classes, whatever file holds them.

Pickles from before they were in `data/` name it for all of them, later ones for `OptionStatics`.
"""

from mjx_warp_ffi.mjx.data.types import Contact as Contact
from mjx_warp_ffi.mjx.data.types import Data as Data
from mjx_warp_ffi.mjx.data.types import Model as Model
from mjx_warp_ffi.mjx.data.types import Option as Option
from mjx_warp_ffi.mjx.data.types import OptionStatics as OptionStatics

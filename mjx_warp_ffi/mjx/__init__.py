"""MJX-style functions that run MuJoCo Warp inside JAX."""

from mjx_warp_ffi.mjx.batch import model_axes as model_axes
from mjx_warp_ffi.mjx.batch import where as where
from mjx_warp_ffi.mjx.forward import forward as forward
from mjx_warp_ffi.mjx.forward import step as step
from mjx_warp_ffi.mjx.io import get_data as get_data
from mjx_warp_ffi.mjx.io import get_data_into as get_data_into
from mjx_warp_ffi.mjx.io import make_data as make_data
from mjx_warp_ffi.mjx.io import put_data as put_data
from mjx_warp_ffi.mjx.io import put_model as put_model
from mjx_warp_ffi.mjx.reset import reset as reset
from mjx_warp_ffi.mjx.state import get_state as get_state
from mjx_warp_ffi.mjx.state import set_state as set_state
from mjx_warp_ffi.mjx.state import state_size as state_size
from mjx_warp_ffi.mjx.types import Contact as Contact
from mjx_warp_ffi.mjx.types import Data as Data
from mjx_warp_ffi.mjx.types import Model as Model
from mjx_warp_ffi.mjx.types import Option as Option

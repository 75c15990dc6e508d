"""The address by which pickles from before they were in `data/` name these enums."""

from mjx_warp_ffi.mjx.data.enums import BiasType as BiasType
from mjx_warp_ffi.mjx.data.enums import CamLightType as CamLightType
from mjx_warp_ffi.mjx.data.enums import ConeType as ConeType
from mjx_warp_ffi.mjx.data.enums import ConstraintType as ConstraintType
from mjx_warp_ffi.mjx.data.enums import DisableBit as DisableBit
from mjx_warp_ffi.mjx.data.enums import DynType as DynType
from mjx_warp_ffi.mjx.data.enums import EnableBit as EnableBit
from mjx_warp_ffi.mjx.data.enums import EqType as EqType
from mjx_warp_ffi.mjx.data.enums import GainType as GainType
from mjx_warp_ffi.mjx.data.enums import GeomType as GeomType
from mjx_warp_ffi.mjx.data.enums import Impl as Impl
from mjx_warp_ffi.mjx.data.enums import IntegratorType as IntegratorType
from mjx_warp_ffi.mjx.data.enums import JacobianType as JacobianType
from mjx_warp_ffi.mjx.data.enums import JointType as JointType
from mjx_warp_ffi.mjx.data.enums import ObjType as ObjType
from mjx_warp_ffi.mjx.data.enums import SensorType as SensorType
from mjx_warp_ffi.mjx.data.enums import SolverType as SolverType
from mjx_warp_ffi.mjx.data.enums import TrnType as TrnType
from mjx_warp_ffi.mjx.data.enums import WrapType as WrapType
